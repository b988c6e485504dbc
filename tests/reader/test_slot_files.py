"""Slot files: written by a generator, read by a data set, trained with; texts are those of Paddle 1.8.5."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest

import minigraph as fluid
from minigraph.errors import DataError, NotFoundError, ProgramError, WrongTypeError
from minigraph.incubate import data_generator

WORDS = """
import sys
sys.path.insert(0, {root!r})
from minigraph.incubate.data_generator import MultiSlotDataGenerator


class Words(MultiSlotDataGenerator):
    def generate_sample(self, line):
        numbers = [float(word) for word in line.split()]
        return lambda: iter([[("x", numbers[:2]), ("y", [int(numbers[2])])]])


Words().run_from_stdin()
"""


class Padded(data_generator.MultiSlotDataGenerator):
    def generate_sample(self, line):
        words = [int(word) for word in line.split()]
        return lambda: iter([None if not words else (("words", words), ("label", [words[0] * 0.5]))])

    def generate_batch(self, samples):
        longest = max(len(words) for (_, words), _ in samples)

        def pad():
            for (name, words), label in samples:
                yield [(name, words + [0] * (longest - len(words))), label]

        return pad


def test_a_generator_writes_what_the_original_writes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 4 5\n7\n\n1 2\n9\n"))
    generator = Padded()
    generator.set_batch(2)
    generator.run_from_stdin()
    assert capsys.readouterr().out == "3 3 4 5 1 1.5\n3 7 0 0 1 3.5\n2 1 2 1 0.5\n2 9 0 1 4.5\n"
    assert generator._proto_info == [("words", "uint64"), ("label", "float")]


@pytest.mark.parametrize(
    ("second", "error", "message"),
    [
        ([("a", [1])], DataError, "1 slots, the first one had 2"),
        ([("b", [1]), ("a", [1])], DataError, "slot 0 is 'b'"),
        ([("a", []), ("b", [1])], DataError, "'a' has no values"),
        ([("a", ["1"]), ("b", [1])], WrongTypeError, "must hold numbers"),
        ([("a", 1), ("b", [1])], WrongTypeError, "a name and a list"),
        ("text", WrongTypeError, "must be a list of"),
    ],
)
def test_samples_that_do_not_fit_are_refused(second, error, message):
    generator = data_generator.MultiSlotDataGenerator()
    generator._gen_str([("a", [1]), ("b", [1])])
    with pytest.raises(error, match=message):
        generator._gen_str(second)
    with pytest.raises(ProgramError, match="Define it in your class"):
        generator.generate_sample("")


# Data sets


@pytest.fixture
def program():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")


def dataset_of(kind, variables, folder, texts, batch=2):
    files = []
    for number, text in enumerate(texts):
        files.append(str(folder / f"part-{number}"))
        Path(files[-1]).write_text(text, encoding="utf-8")
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(variables)
    dataset.set_batch_size(batch)
    dataset.set_thread(4)
    dataset.set_filelist(files)
    return dataset


TEXTS = "2 1.0 2.0 1 3\n2 4.0 5.0 1 6\n", "2 7.0 8.0 1 9\n"


def test_a_data_set_trains_a_program(program, tmp_path, capsys):
    x, y = program
    total = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
    fluid.layers.assign(
        total + fluid.layers.reduce_sum(x) + fluid.layers.cast(fluid.layers.reduce_sum(y), "float32"), total
    )
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    dataset = dataset_of("QueueDataset", [x, y], tmp_path, TEXTS)
    executor.train_from_dataset(
        fluid.default_main_program(), dataset, fetch_list=[total], fetch_info=["sum"], print_period=1
    )
    assert capsys.readouterr().out == "batch 0: sum [21.]\nbatch 1: sum [45.]\n"
    executor.infer_from_dataset(fluid.default_main_program(), dataset)
    assert fluid.global_scope().find_var(total.name).value.tolist() == [90.0]


@pytest.mark.slow
def test_files_go_through_the_command(program, tmp_path):
    script = tmp_path / "words.py"
    script.write_text(WORDS.format(root=str(Path(__file__).parents[2])), encoding="utf-8")
    dataset = dataset_of("QueueDataset", program, tmp_path, ["1 2 3\n4 5 6\n"])
    dataset.set_pipe_command(f"{sys.executable} {script}")
    (feed,) = dataset.batches()
    np.testing.assert_array_equal(feed["x"], np.array([[1, 2], [4, 5]], "float32"))
    np.testing.assert_array_equal(feed["y"], np.array([[3], [6]]))
    dataset.set_pipe_command("exit 3; true")
    with pytest.raises(DataError, match=r"'exit 3; true' failed on .*part-0 with status 3"):
        list(dataset.batches())


@pytest.mark.parametrize("line", ["² 1 1 1 1".encode(), b"2 1 \xff 1 6"])
def test_what_is_no_number_is_an_error_of_the_line(line, program, tmp_path):
    dataset = dataset_of("QueueDataset", program, tmp_path, [""])
    (tmp_path / "part-0").write_bytes(line + b"\n")
    with pytest.raises(DataError, match=r"part-0, line 1|slot x does not fit"):
        list(dataset.batches())


def test_samples_in_memory_are_shuffled_and_forgotten(program, tmp_path):
    dataset = dataset_of("InMemoryDataset", program, tmp_path, ["".join(f"2 {n} {n} 1 {n}\n" for n in range(20))], 5)
    with pytest.raises(ProgramError, match="load_into_memory"):
        dataset.local_shuffle()
    dataset.load_into_memory()
    before = [number for feed in dataset.batches() for number in feed["y"].ravel().tolist()]
    dataset.global_shuffle()
    after = [number for feed in dataset.batches() for number in feed["y"].ravel().tolist()]
    assert before == list(range(20)) == sorted(after) != after
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 20
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0


def test_sequences_keep_their_lengths(program, tmp_path, capsys):
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    total = fluid.layers.sequence_pool(fluid.layers.cast(words, "float32"), "sum")
    dataset = dataset_of("QueueDataset", [words], tmp_path, ["3 1 2 3\n1 4\n"])
    fluid.Executor().infer_from_dataset(fluid.default_main_program(), dataset, fetch_list=[total], fetch_info=["sums"])
    assert "[6.]" in capsys.readouterr().out
    (feed,) = dataset.batches()
    assert feed["words"].recursive_sequence_lengths() == [[3, 1]]
    assert np.asarray(feed["words"]).ravel().tolist() == [1, 2, 3, 4]


def test_zeros_of_sequences_stay_out_of_memory(tmp_path):
    text = "3 1 0 2 2 0.5 0.0 1 0 2 0 0.0\n1 0 1 0 1 3 2 0.0000001 4\n2 0 7 1 0 1 1 2 1 0\n"
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        sparse = fluid.data("i", [None, 1], "int64", lod_level=1), fluid.data("f", [None, 1], lod_level=1)
        variables = [*sparse, fluid.data("d", [None, 1], "int64"), fluid.data("e", [None, 2])]
    found = {}
    for kind in ("InMemoryDataset", "QueueDataset"):
        dataset = dataset_of(kind, variables, tmp_path, [text], 3)
        if kind == "InMemoryDataset":
            dataset.load_into_memory()
        (found[kind],) = dataset.batches()
    in_memory, queued = (
        [np.asarray(feed[name]).ravel().tolist() for name in "if"]
        for feed in (found["InMemoryDataset"], found["QueueDataset"])
    )
    assert in_memory == [[1, 2, 0, 7], [0.5, 0, 0]]  # printed by 1.8.5
    assert queued == [[1, 0, 2, 0, 0, 7], [0.5, 0, 0, 0]]
    assert found["InMemoryDataset"]["i"].recursive_sequence_lengths() == [[2, 1, 1]]
    assert found["InMemoryDataset"]["d"].tolist() == [[0], [3], [1]]


@pytest.mark.parametrize(("drop_last", "expected"), [(True, [2]), (False, [2, 1])])
def test_a_loader_gives_the_batches_of_a_data_set(program, tmp_path, drop_last, expected):
    dataset = dataset_of("QueueDataset", program, tmp_path, ["2 1 2 1 0\n2 3 4 1 1\n", "2 5 6 1 0\n"])
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last)
    for _ in range(2):  # the files are read anew
        batches = [batch for (batch,) in loader()]
        assert [batch["x"].shape() for batch in batches] == [[size, 2] for size in expected]
        assert np.asarray(batches[0]["y"]).tolist() == [[0], [1]]
    with pytest.raises(WrongTypeError, match="dataset must be one of slot files"):
        fluid.io.DataLoader.from_dataset([], fluid.cpu_places(1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 1.0\n", "part-0, line 1: there must be the number of values of x"),
        ("2 1 2 1 3 4\n", "1 words are left after the 2 slots"),
        ("0 1 3\n", "number of values of x"),
        ("3 1 2 3 1 4\n", "slot x does not fit"),
        ("2 a b 1 4\n", "slot x does not fit"),
    ],
)
def test_lines_that_do_not_fit_are_errors(program, tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        list(dataset_of("QueueDataset", program, tmp_path, [text]).batches())


def test_hashes_keep_their_bits(program, tmp_path):
    (feed,) = dataset_of("QueueDataset", program, tmp_path, ["2 1 2 1 18446744073709551615\n2 3 4 1 7\n"]).batches()
    assert feed["y"].tolist() == [[-1], [7]]


def test_words_in_front_of_the_slots_are_skipped(program, tmp_path):
    dataset = dataset_of("InMemoryDataset", program, tmp_path, ["1 id7 1 text 2 1 2 1 3\n1 id8 1 more 2 4 5 1 6\n"])
    dataset.set_parse_ins_id(True)
    dataset.set_parse_content(True)
    dataset.load_into_memory()
    (feed,) = dataset.batches()
    assert feed["x"].tolist() == [[1, 2], [4, 5]]


def test_names_of_samples_are_skipped_and_merge_nothing_without_a_parameter_server(program, tmp_path):
    dataset = dataset_of("InMemoryDataset", program, tmp_path, ["1 id7 2 1 2 1 3\n1 id7 2 4 5 1 6\n"])
    dataset.set_merge_by_lineid(2)
    dataset.load_into_memory()
    dataset.global_shuffle()
    assert dataset.get_memory_data_size() == 2, "as in Paddle 1.8.5 in one process"
    (feed,) = dataset.batches()
    assert sorted(feed["x"].tolist()) == [[1, 2], [4, 5]]


def test_values_of_a_slot_are_exchanged_between_samples(program, tmp_path):
    dataset = dataset_of("InMemoryDataset", program, tmp_path, ["".join(f"2 {n} {n} 1 {n}\n" for n in range(20))], 20)
    dataset.load_into_memory()
    dataset.slots_shuffle(["y"])  # without an effect, as long as set_fea_eval was not called
    assert next(dataset.batches())["y"].ravel().tolist() == list(range(20))
    dataset.set_fea_eval(100, True)
    dataset.slots_shuffle(["y"])
    (feed,) = dataset.batches()
    assert (
        feed["x"][:, 0].tolist() == list(range(20)) == sorted(feed["y"].ravel().tolist()) != feed["y"].ravel().tolist()
    )


def test_settings_have_the_text_of_the_original(program):
    words = fluid.data("w", [None, 1], "int64", lod_level=1)
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_use_var([program[0], words])
    dataset.set_batch_size(2)
    dataset.set_rank_offset("offset")
    dataset.set_pv_batch_size(4)
    dataset.set_feed_type("SlotRecordInMemoryDataFeed")
    assert dataset.desc() == DESCRIPTION.lstrip("\n")  # printed by 1.8.5


DESCRIPTION = """
name: "SlotRecordInMemoryDataFeed"
batch_size: 2
multi_slot_desc {
  slots {
    name: "x"
    type: "float"
    is_dense: true
    is_used: true
    shape: -1
    shape: 2
  }
  slots {
    name: "w"
    type: "uint64"
    is_used: true
  }
}
pipe_command: "cat"
rank_offset: "offset"
pv_batch_size: 4
"""


def test_a_handler_sees_variables_while_a_program_is_trained(program, tmp_path, capsys):
    total = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
    fluid.layers.assign(total + fluid.layers.reduce_sum(program[0]), total)
    executor, seen = fluid.Executor(), []
    executor.run(fluid.default_startup_program())

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            seen.append(res_dict)
            super().handler(res_dict)

    dataset = dataset_of("QueueDataset", program, tmp_path, TEXTS)
    for seconds, times in (60, 1), (0, 3):
        seen.clear()
        handler = Handler({"sum": total, "none": program[1]}, period_secs=seconds)
        executor.train_from_dataset(fluid.default_main_program(), dataset, fetch_handler=handler)
        assert len(seen) == times
    assert seen[-1]["sum"].tolist() == [54.0]
    assert seen[-1]["none"] is None
    assert capsys.readouterr().out.endswith("sum[0]: 54.0 \n")
    with pytest.raises(WrongTypeError, match="a dict of"):
        fluid.executor.FetchHandler([total])


def test_what_only_parameter_servers_do_is_refused(program, tmp_path):
    dataset = dataset_of("InMemoryDataset", program, tmp_path, TEXTS)
    dataset.set_enable_pv_merge(True)
    with pytest.raises(ProgramError, match="page views"):
        dataset.set_current_phase(1)
    dataset.set_filelist(["hdfs:/part-0"])
    with pytest.raises(DataError, match="cannot be read from here"):
        dataset.load_into_memory()


def test_wrong_arguments_say_what_to_do(program):
    with pytest.raises(NotFoundError, match="Did you mean QueueDataset"):
        fluid.DatasetFactory().create_dataset("QueueDatset")
    dataset = fluid.DatasetFactory().create_dataset()
    with pytest.raises(ProgramError, match="set_use_var"):
        list(dataset.batches())
    with pytest.raises(ProgramError, match="InMemoryDataset"):
        dataset.local_shuffle()
    with pytest.raises(WrongTypeError, match="float32 and int64"):
        dataset.set_use_var([fluid.data("z", [2], "float64")])
    with pytest.raises(WrongTypeError, match=r"DatasetFactory\(\)"):
        fluid.Executor().train_from_dataset(fluid.default_main_program())
