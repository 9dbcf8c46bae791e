"""Import and export with real PEFT: a round trip changes nothing, and an unusable adapter is refused with a remedy."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from burnish.adapters.files.export import as_tar, export
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry import lifecycle
from burnish.config import Engine, Settings
from burnish.config import Learner as LearnerSettings
from burnish.errors import AdapterError, Conflict, NotFound
from burnish.journal import Journal
from burnish.journal.tables import LoadJob, VersionRow
from burnish.learner.data.rows import Text
from burnish.learner.model import checkpoint
from burnish.learner.run.adopt import adopt
from burnish.learner.run.process import trainer_for
from burnish.records import VersionState

ALL = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
TEXT = Text([10, 11, 12, 13], [20, 21, 22, 0])


def peft_adapter(base_dir: Path, folder: Path, **config: Any) -> Path:
    """An adapter as another program's PEFT saves it, with B that is not 0."""
    base = AutoModelForCausalLM.from_pretrained(str(base_dir), dtype=torch.float32)
    chosen = {"r": 4, "lora_alpha": 8, "target_modules": ALL, "lora_dropout": 0.1, "task_type": "CAUSAL_LM", **config}
    model = get_peft_model(base, LoraConfig(**chosen))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_B" in name:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
    model.save_pretrained(str(folder))
    return folder


def logprobs(base_dir: Path, adapter: Path) -> torch.Tensor:
    """PEFT's own log-probs for TEXT under the adapter in a directory."""
    base = AutoModelForCausalLM.from_pretrained(str(base_dir), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(adapter)).eval()
    ids = torch.tensor([[*TEXT.prompt_ids, *TEXT.completion_ids]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0, len(TEXT.prompt_ids) - 1 : -1], dim=-1)
    return logprobs.gather(1, torch.tensor(TEXT.completion_ids)[:, None]).squeeze(1)


@pytest.fixture(scope="module")
def plain(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the learner's own form, to be copied."""
    return peft_adapter(base_dir, tmp_path_factory.mktemp("plain") / "given")


@pytest.fixture
def given(plain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "given"))


@pytest.fixture
def settings(base_dir: Path, tmp_path: Path, sqlite_url: str) -> Settings:
    return Settings(
        state_dir=tmp_path / "state",
        engine=Engine(model=str(base_dir), max_lora_rank=8),
        learner=LearnerSettings(rank=4, device="cpu"),
        journal={"url": sqlite_url},  # type: ignore[arg-type]
    )


@pytest.fixture
def agent(journal: Journal) -> str:
    with journal.write() as session:
        lifecycle.ensure_agent(session, "agent")
    return "agent"


def row_of(journal: Journal, number: int) -> VersionRow:
    with journal.read() as session:
        return lifecycle.version(session, "agent", number)


def test_an_import_is_a_candidate_with_the_very_same_weights(
    settings: Settings, journal: Journal, agent: str, base_dir: Path, given: Path
) -> None:
    (given / "README.md").write_text("hello")
    number, read = adopt(settings, journal, agent, given, actor="ana")
    assert (number, read.rank, read.ignored) == (1, 4, ("README.md",))
    row = row_of(journal, 1)
    assert (row.state, row.origin, row.step_id, row.parent) == (VersionState.CANDIDATE, "import", None, 0)
    with journal.read() as session:
        assert session.get_one(LoadJob, "agent@v1").payload == {"agent": "agent", "version": 1}
    store = AdapterStore.of(settings)
    manifest = store.verify(agent, 1)
    assert (manifest["origin"], manifest["imported"]["rank"], row.digest) == (
        "import",
        4,
        manifest["files"]["adapter_model.safetensors"],
    )
    then, now = (
        load_file(given / "adapter_model.safetensors"),
        load_file(store.path(agent, 1) / "adapter_model.safetensors"),
    )
    assert set(then) == set(now) and all(torch.equal(then[name], now[name]) for name in then)
    probe = json.loads((store.path(agent, 1) / "probe.json").read_text())
    assert probe["positions"] and probe["gap_base"] > 0.1
    # the learner continues from it
    trainer = trainer_for(settings, settings.recipe, agent)
    checkpoint.restore(store.path(agent, 1), trainer)
    assert torch.allclose(trainer.policy.logprobs([TEXT])[0], logprobs(base_dir, given), atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {"r": 2, "lora_alpha": 8},
        {"r": 3, "lora_alpha": 5, "use_rslora": True},
        {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 16},
        {"target_modules": r".*\.(q|v)_proj", "layers_to_transform": None},
    ],
)
def test_an_import_of_another_form_computes_the_same(
    settings: Settings,
    journal: Journal,
    agent: str,
    base_dir: Path,
    tmp_path: Path,
    config: dict[str, Any],
    plain: Path,
) -> None:
    given = peft_adapter(base_dir, tmp_path / "given", **config)
    adopt(settings, journal, agent, given, actor="ana")
    written = export(AdapterStore.of(settings), agent, 1, tmp_path / "out")
    assert torch.allclose(logprobs(base_dir, written), logprobs(base_dir, given), atol=1e-5)
    assert not torch.allclose(logprobs(base_dir, written), logprobs(base_dir, plain), atol=1e-2)


def test_an_export_is_loaded_by_peft_and_imported_again(
    settings: Settings, journal: Journal, agent: str, base_dir: Path, tmp_path: Path, given: Path
) -> None:
    adopt(settings, journal, agent, given, actor="ana")
    store = AdapterStore.of(settings)
    written = export(store, agent, 1, tmp_path / "deep" / "out")
    assert sorted(file.name for file in written.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
    ]
    assert torch.equal(logprobs(base_dir, written), logprobs(base_dir, store.path(agent, 1)))
    with pytest.raises(AdapterError, match="exists already"):
        export(store, agent, 1, written)
    assert len(as_tar(store, agent, 1)) > 1000
    with journal.write() as session:
        lifecycle.promote(session, agent, 1, expected=0, actor="gate")
    number, _ = adopt(settings, journal, agent, written, actor="ana")
    assert (number, row_of(journal, 2).parent) == (2, 1)
    (store.path(agent, 1) / "adapter_model.safetensors").unlink()
    with pytest.raises(AdapterError, match="is missing"):
        export(store, agent, 1, tmp_path / "other")


Change = Callable[[Path], None]


def setting(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def tensors(rename: Callable[[str], str] = str, make: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> Change:
    def change(folder: Path) -> None:
        file = folder / "adapter_model.safetensors"
        save_file({rename(name): make(tensor).contiguous() for name, tensor in load_file(file).items()}, file)

    return change


def writing(name: str, content: bytes = b"x") -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def removing(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            setting(base_model_name_or_path="acme/other-7b"),
            "made for base 'acme/other-7b', the engine serves .*--any-base",
        ),
        (setting(base_model_name_or_path=None), "names no base; .*--any-base"),
        (setting(revision="v2"), "revision 'v2' .* cannot be compared"),
        (
            writing("manifest.json", b'{"base": {"revision": "0123456789abcdef"}}'),
            "made on base 0123456789ab…, the engine",
        ),
        (setting(r=16), r"rank 16, the engine takes 8 at most; raise engine\.max_lora_rank"),
        (setting(r=True), "r is True"),
        (setting(r=2), "not of rank 2"),
        (setting(lora_alpha=0), "lora_alpha is 0"),
        (setting(peft_type="IA3"), "expected 'LORA'"),
        (setting(use_dora=True), "use_dora is True"),
        (setting(bias="all"), "bias is 'all'"),
        (setting(modules_to_save=["lm_head"]), "modules_to_save"),
        (setting(rank_pattern={"q_proj": 2}), "rank_pattern"),
        (setting(init_lora_weights="pissa_niter_4"), "changes the base as well"),
        (setting(task_type="SEQ_CLS"), "task_type is 'SEQ_CLS'"),
        (tensors(lambda name: name.replace("layers.1", "layers.7")), r"layers\.7\.\S* is no layer of the base"),
        (tensors(lambda name: name.replace("base_model.", "")), "no LoRA tensor of PEFT's layout"),
        (tensors(make=lambda t: torch.cat([t, t], dim=int(t.shape[0] == 4))), "has shape .*, the base's layer is"),
        (tensors(make=lambda t: t * float("nan")), "not finite"),
        (writing("training_args.bin"), "is a pickle, which can hold any program"),
        (writing("modeling_x.py"), "is code, and an adapter needs none"),
        (writing("adapter_model.safetensors", b"\x80\x04\x95"), "is not a safetensors file"),
        (writing("adapter_config.json", b"[]"), "expected a JSON object"),
        (writing("adapter_config.json", b"{"), "cannot read"),
        (removing("adapter_model.safetensors"), r"adapter_model\.safetensors is missing"),
    ],
)
def test_an_adapter_that_cannot_be_served_is_refused_before_a_number_is_taken(
    settings: Settings, journal: Journal, agent: str, change: Change, message: str, given: Path
) -> None:
    change(given)
    with pytest.raises(AdapterError, match=message):
        adopt(settings, journal, agent, given, actor="ana")
    with journal.read() as session:
        assert lifecycle.versions(session, agent) == []


def test_an_operator_may_vouch_for_the_base_but_not_for_the_shapes(
    settings: Settings, journal: Journal, agent: str, given: Path
) -> None:
    setting(base_model_name_or_path="acme/other-7b", revision="v2")(given)
    assert adopt(settings, journal, agent, given, actor="ana", any_base=True)[0] == 1
    tensors(lambda name: name.replace("layers.1", "layers.7"))(given)
    with pytest.raises(AdapterError, match="is no layer of the base"):
        adopt(settings, journal, agent, given, actor="ana", any_base=True)


def test_a_rank_above_the_learners_is_served_only_without_learning(
    settings: Settings, journal: Journal, agent: str, base_dir: Path, tmp_path: Path
) -> None:
    given = peft_adapter(base_dir, tmp_path / "given", r=8, lora_alpha=16)
    with pytest.raises(AdapterError, match=r"exceeds the learner's 4.*raise learner\.rank"):
        adopt(settings, journal, agent, given, actor="ana")
    still = settings.model_copy(update={"learner": settings.learner.model_copy(update={"enabled": False})})
    adopt(still, journal, agent, given, actor="ana")
    assert AdapterStore.of(settings).verify(agent, 1)["rank"] == 8


def test_an_import_that_fails_half_way_is_reported_and_blocks_nothing(
    settings: Settings, journal: Journal, agent: str, monkeypatch: pytest.MonkeyPatch, given: Path
) -> None:

    def full(*_: Any, **__: Any) -> None:
        raise AdapterError("the disk is full")

    with monkeypatch.context() as broken, pytest.raises(AdapterError, match="disk is full"):
        broken.setattr(AdapterStore, "publish", full)
        adopt(settings, journal, agent, given, actor="ana")
    assert (row_of(journal, 1).state, row_of(journal, 1).reason) == ("refused", "its import failed: the disk is full")
    assert adopt(settings, journal, agent, given, actor="ana")[0] == 2
    with pytest.raises(Conflict, match="agent@v2 is still on trial"):
        adopt(settings, journal, agent, given, actor="ana")
    with pytest.raises(NotFound, match="no agent 'nobody'"):
        adopt(settings, journal, "nobody", given, actor="ana")


def test_the_import_runs_as_a_separate_process(settings: Settings, journal: Journal, agent: str, given: Path) -> None:
    asked = {
        "settings": settings.model_dump(mode="json"),
        "agent": agent,
        "directory": str(given),
        "actor": "ana",
        "any_base": False,
    }
    answers = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "burnish.learner.run.adopt"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    assert answers[0] == {"version": 1, "ignored": ["README.md"]}
    assert answers[1]["kind"] == "Conflict" and "still on trial" in answers[1]["error"]
