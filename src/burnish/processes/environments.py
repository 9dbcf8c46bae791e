"""The environment of each part: an allow-list, so that a secret reaches the parts that need it and no other.

`burnish up` gives it to the parts. Whoever starts a part alone (`burnish run PART`) chooses its environment.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from burnish import config
from burnish.config import tracing

WITH_JOURNAL = frozenset({"gateway", "ingester", "swapper", "judge", "learner"})
SECRETS: dict[str, frozenset[str]] = {
    "remote.api_key": frozenset({"remote"}),
    "judge.api_key": frozenset({"judge"}),
    "alerts.webhook": frozenset({"swapper"}),
    "journal.url": WITH_JOURNAL,
    "engine.api_key": WITH_JOURNAL | {"engine", "remote"},
}
"""Settings that open something, each with the parts that need it. The others have an empty value, which also hides that
of a file.
"""
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "64"}
"""How many matrix products oneDNN and PyTorch keep compiled on a CPU, for the engine and the learner. There is one for
each number of tokens. By default each library keeps 1,024, which takes hundreds of megabytes
(docs/decisions/0077-memory-of-engine-and-learner.md).
"""
PLAIN = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "LANG"),
    *("LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP", "XDG_*", "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_*"),
    *("MALLOC_*", "GLIBC_TUNABLES", "CC", "CXX", "CPATH", "LIBRARY_PATH", "MAX_JOBS", "OMP_*", "GOMP_*", "KMP_*"),
    *("MKL_*", "OPENBLAS_*", "BLIS_*", "DNNL_*", "ONEDNN_*", "NUMEXPR_*", "TOKENIZERS_*", "TIKTOKEN_*", "RAYON_*"),
    *CACHES,
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*", "HIP_*", "HSA_*", "ROCM_*", "ROCR_*"),
    *("TORCH*", "PYTORCH_*", "TRITON_*", "FLASHINFER_*", "SAFETENSORS_*", "TRANSFORMERS_*", "HF_HOME", "HF_HUB_*"),
    *("HF_ENDPOINT", "HF_XET_*", "HUGGINGFACE_HUB_CACHE", "DO_NOT_TRACK", "SSL_*", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy"),
    *("all_proxy", "no_proxy"),
)
"""What a process may need to run at all. A `*` stands for any end or beginning."""
NEVER_PLAIN = ("*_KEY", "*_TOKEN", "*_SECRET", "*_PASSWORD")
"""Names of secrets, whatever they begin with, for example `NVIDIA_API_KEY`."""
HUB = ("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN")
PROVIDERS = (
    *("*_API_KEY", "*_API_BASE", "*_API_VERSION", "*_BASE_URL", "*_API_TOKEN", "LITELLM_*", "OPENAI_*", "ANTHROPIC_*"),
    *("AWS_*", "AZURE_*", "GOOGLE_*", "GEMINI_*", "VERTEX*", "MISTRAL_*", "COHERE_*", "DATABRICKS_*", "WATSONX_*"),
    *("SNOWFLAKE_*", "OCI_*", "CLOUDFLARE_*", "OLLAMA_*", "OPENROUTER_*", "OR_*", "HTTPX_*", "AIOHTTP_*"),
    *HUB,
)
"""What litellm and the providers' libraries read."""
OF_PARTS: dict[str, tuple[str, ...]] = {
    "engine": ("VLLM_*", *HUB),
    "learner": HUB,
    "judge": ("RAY_*",),
    "remote": PROVIDERS,
    tracing.PART: (tracing.PREFIX + "*",),
}


def environment_of(part: str, settings: config.Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """What the process of `part` finds in its environment: the settings, and what it may have of `inherited`."""
    allowed = [*OF_PARTS.get(part, ())]
    if part in WITH_JOURNAL:
        allowed.append("PG*")
    if part == "judge" and (settings.judge.model or settings.judge.fallback_model):
        allowed += PROVIDERS
    kept = {name: value for name, value in inherited.items() if _is_plain(name) or _is_one(name, allowed)}
    if part in ("engine", "learner"):
        kept = CACHES | kept
    hidden = {_variable(key): "" for key, parts in SECRETS.items() if part not in parts}
    return {**kept, **config.to_environment(settings), "PYTHONUNBUFFERED": "1", **hidden}


def _is_plain(name: str) -> bool:
    return name == "BURNISH_CONFIG" or (_is_one(name, PLAIN) and not _is_one(name, NEVER_PLAIN))


def _is_one(name: str, patterns: Iterable[str]) -> bool:
    """Never a setting, which is not inherited but given. They are read in any case."""
    return not name.upper().startswith("BURNISH_") and any(fnmatchcase(name, pattern) for pattern in patterns)


def _variable(key: str) -> str:
    return f"BURNISH_{key.replace('.', '__')}".upper()
