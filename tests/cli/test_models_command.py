"""The subcommands show and diff, on models that Paddle 1.8.5 saved and on texts."""

from pathlib import Path

import pytest

from minigraph.cli.main import main
from minigraph.cli.models import program_in

MODELS = Path(__file__).parents[1] / "golden" / "io"


@pytest.mark.parametrize("model", ["mlp/inference", "mlp/net", "mlp/net.pdmodel", "control_flow/while_array"])
def test_a_model_is_printed_as_its_program(model, capsys):
    assert main(["show", str(MODELS / model)]) == 0
    assert capsys.readouterr().out == f"{program_in(MODELS / model)}\n"


@pytest.mark.slow
def test_programs_of_two_models_are_compared(tmp_path, capsys):
    text = tmp_path / "net.txt"
    text.write_text(str(program_in(MODELS / "mlp" / "net")), encoding="utf-8")
    assert main(["diff", str(MODELS / "mlp" / "net.pdmodel"), str(text)]) == 0
    assert capsys.readouterr().out == "The programs are equal.\n"
    text.write_text(text.read_text(encoding="utf-8").replace("mu=0.9", "mu=0.8", 1), encoding="utf-8")
    assert main(["diff", str(MODELS / "mlp" / "net"), str(text), "--context", "0"]) == 1
    heading, *lines = [line for line in capsys.readouterr().out.splitlines() if line.strip() != "..."]
    assert heading.strip() == "block 0"
    assert [line[0] for line in lines] == ["-", "+"] and "mu=0.8" in lines[1]


def test_what_is_no_model_is_an_error(tmp_path, capsys):
    (tmp_path / "text").write_text("nothing\n", encoding="utf-8")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, told in (
        ("text", "holds no program"),
        ("bytes", "no program"),
        ("lost", "there is no model"),
        ("", "no model"),
    ):
        assert main(["show", str(tmp_path / name)]) == 1
        assert told in capsys.readouterr().err
