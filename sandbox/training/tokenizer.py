"""The base model's tokenizer and chat template.

Byte-level BPE trained on the sandbox's own rows: any UTF-8 text can be encoded, every digit is its own token, the end
of a turn is the end of the sequence. Tools, tool calls and tool results are rendered in the Hermes form. Guarantee: a
message with a list of parts as content renders like the same text in one string.
"""

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 1024
PAD, END = "<|pad|>", "<|end|>"
SYSTEM, USER, ASSISTANT, TOOL = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"
SPECIAL = (PAD, END, SYSTEM, USER, ASSISTANT, TOOL)
MARKS = ("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Single tokens that stay visible when special tokens are skipped, because a parser has to find them in the text."""

CHAT_TEMPLATE = """
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}{%- for part in content -%}{{ part['text'] }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if messages[0]['role'] == 'system' or tools -%}
{{ '<|system|>' }}
{%- if messages[0]['role'] == 'system' -%}{{ text(messages[0]['content']) }}{%- endif -%}
{%- if tools -%}
{{ '\\n\\n# Tools\\n<tools>' }}
{%- for tool in tools -%}
{%- set function = tool['function'] if 'function' in tool else tool -%}
{{ '\\n{"name": "' + function['name'] + '"' }}
{%- if function['description'] -%}{{ ', "description": ' + function['description'] | tojson }}{%- endif -%}
{{ ', "parameters": ' + function['parameters'] | tojson + '}' }}
{%- endfor -%}
{{ '\\n</tools>' }}
{%- endif -%}
{{ '<|end|>' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{%- if not loop.first -%}{{ '<|system|>' + text(message['content']) + '<|end|>' }}{%- endif -%}
{%- elif message['role'] == 'tool' -%}
{{ '<|tool|><tool_response>\\n' + text(message['content']) + '\\n</tool_response><|end|>' }}
{%- elif message['role'] == 'assistant' -%}
{{ '<|assistant|>' + text(message['content']) }}
{%- for call in message['tool_calls'] or [] -%}
{%- set function = call['function'] -%}
{%- if not loop.first -%}{{ '\\n' }}{%- endif -%}
{{ '<tool_call>\\n{"name": "' + function['name'] + '", "arguments": ' }}
{{- function['arguments'] if function['arguments'] is string else function['arguments'] | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|end|>' }}
{%- else -%}
{{ '<|user|>' + text(message['content']) + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}
"""


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train the tokenizer on `texts`. The same texts in the same order give the same tokenizer."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT, TOOL],
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE.strip()
    return tokenizer
