"""What a plan decided, word by word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.engine_output.capabilities import Flags, parse_help
from supervisor.core.launch import LaunchOptions, LaunchSpec, ModelFacts, Placed, build_launch
from supervisor.core.memory import EstimateOptions
from supervisor.errors import InvalidRequest, OptionNotSupported
from tests.support.placements import placement

FLAGS = parse_help((Path(__file__).parents[2] / "llamacpp/data/help-b11434.txt").read_text(encoding="utf-8"))
BOTH = placement(("CUDA0", "CUDA1"), ctx_size=8192, tensor_split=(3, 2), n_gpu_layers=5)
HOST = placement((), ctx_size=4096)


def launch(placed: Placed, options: LaunchOptions | None = None, flags: Flags | None = FLAGS) -> LaunchSpec:
    return build_launch("s", "m", "x.sock", "a", options or LaunchOptions(), ModelFacts(), flags, placed=placed)


def asked(placed: Placed, options: LaunchOptions | None = None, flags: Flags | None = FLAGS) -> str:
    """What follows our own arguments."""
    argv = launch(placed, options, flags).argv
    return " ".join(argv[argv.index("--log-timestamps") + 1 if flags else 7 :])


def test_several_devices() -> None:
    assert asked(Placed(BOTH)) == (
        "--ctx-size 8192 --cache-type-k f16 --cache-type-v f16 --device CUDA0,CUDA1 --n-gpu-layers 5 --tensor-split 3,2"
        " --split-mode layer --fit off"
    )


def test_no_device_at_all() -> None:
    assert asked(Placed(HOST)) == (
        "--ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --device none --n-gpu-layers 0 --fit off"
    )


def test_one_device_and_what_else_a_plan_can_choose() -> None:
    options = EstimateOptions(ctx_size=16384, parallel=4, kv_unified=True, cache_type_k="q8_0", cache_type_v="q8_0")
    one = replace(placement(("CUDA1",), n_gpu_layers=3), split_mode="none", n_cpu_moe=2, options=options)
    assert asked(Placed(one)) == (
        "--kv-unified --ctx-size 16384 --parallel 4 --cache-type-k q8_0 --cache-type-v q8_0 --device CUDA1"
        " --n-gpu-layers 3 --split-mode none --main-gpu 0 --n-cpu-moe 2 --fit off"
    )


def test_the_plan_stands_in_for_what_the_user_said_and_the_rest_stays() -> None:
    options = LaunchOptions(ctx_size=1, device=("CUDA7",), tensor_split=(1.0,), fit="off", batch_size=64, swa_full=True)
    said = asked(Placed(BOTH), options)
    assert "--ctx-size 8192 --batch-size 64" in said
    assert "--swa-full" in said
    assert "CUDA7" not in said
    assert said.endswith("--fit off")


def test_fit_that_a_user_wants_is_left_to_llama_server_on_the_devices_of_the_plan() -> None:
    assert asked(Placed(BOTH), LaunchOptions(fit="on")) == (
        "--cache-type-k f16 --cache-type-v f16 --device CUDA0,CUDA1 --split-mode layer --fit on"
    )
    said = asked(Placed(BOTH), LaunchOptions(fit="on", ctx_size=1000, n_gpu_layers=2))
    assert "--ctx-size 1000" in said
    assert "--n-gpu-layers 2" in said


def test_paged_weights_stay_in_the_files_pages() -> None:
    paged = replace(HOST, options=replace(HOST.options, repack=False))
    said = asked(Placed(paged))
    assert said.startswith("--no-repack ")
    assert said.endswith(" --load-mode mmap")
    assert "--load-mode" not in asked(Placed(paged), LaunchOptions(repack=False))
    assert "repack" not in asked(Placed(HOST))


def test_an_engine_that_sees_fewer_devices_counts_them_anew() -> None:
    placed = Placed(
        placement(("CUDA3", "CUDA1"), tensor_split=(1, 1), n_gpu_layers=2),
        names={"CUDA1": "CUDA0", "CUDA3": "CUDA1"},
        visible_env={"CUDA_VISIBLE_DEVICES": "1,3"},
    )
    options = LaunchOptions(
        override_tensor=("exps=CUDA3", "x=CPU"), spec_draft_device=("CUDA1",), mmproj_device="CUDA3", env={"A": "b"}
    )
    spec = launch(placed, options)
    said = " ".join(spec.argv)
    assert "--device CUDA1,CUDA0" in said
    assert "--override-tensor exps=CUDA1,x=CPU" in said
    assert "--spec-draft-device CUDA0" in said
    assert "--mmproj-device CUDA1" in said
    assert dict(spec.names) == {"CUDA0": "CUDA1", "CUDA1": "CUDA3"}
    assert dict(spec.env) == {"A": "b", "CUDA_VISIBLE_DEVICES": "1,3", "LLAMA_SERVER_ROUTER_PORT": "1"}


def test_a_variable_that_would_undo_the_plan_is_refused() -> None:
    placed = Placed(BOTH, visible_env={"CUDA_VISIBLE_DEVICES": "0,1"})
    with pytest.raises(InvalidRequest, match="use the option device") as caught:
        launch(placed, LaunchOptions(env={"CUDA_VISIBLE_DEVICES": "2"}))
    assert caught.value.param == "env"
    launch(placed, LaunchOptions(env={"CUDA_VISIBLE_DEVICES": "0,1"}))


def test_workers_are_named_before_the_devices_that_they_become() -> None:
    said = asked(Placed(placement(("RPC0",)), rpc=("127.0.0.1:1", "127.0.0.1:2")))
    assert "--rpc 127.0.0.1:1,127.0.0.1:2 --device RPC0" in said


def test_older_builds_get_what_they_know() -> None:
    older = {name: values for name, values in FLAGS.items() if name not in {"--fit", "-fit", "--device", "-dev"}}
    assert asked(Placed(HOST), flags=older) == (
        "--ctx-size 4096 --cache-type-k f16 --cache-type-v f16 --n-gpu-layers 0"
    )
    with pytest.raises(OptionNotSupported):
        asked(Placed(BOTH), flags=older)
    assert "--fit" not in asked(Placed(BOTH), flags=None)
