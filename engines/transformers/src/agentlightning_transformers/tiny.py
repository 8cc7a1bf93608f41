"""A tiny chat policy with its own tokenizer, for tests and examples that must learn on a CPU.

Qwen3's architecture at a few hundred thousand random weights, ChatML, tools and tool calls. Nothing
is downloaded; plain ``transformers`` loads the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

_PAD: Final = "<|endoftext|>"
_START: Final = "<|im_start|>"
_END: Final = "<|im_end|>"
_TOOL_TOKENS: Final = ("<tool_call>", "</tool_call>")

# Every line break is inside an expression: one between tags would be eaten by the next `-%}`, and a
# prompt that lacks the line break after `assistant` trains well and then answers nothing right.
CHAT_TEMPLATE: Final = (
    "{%- set system = (messages[0].content or '') if messages[0].role == 'system' else '' -%}"
    "{%- if system or tools -%}"
    "{{- '<|im_start|>system\\n' + system -}}"
    "{%- if tools -%}"
    "{{- ('\\n' if system else '') + 'Tools:' -}}"
    "{%- for tool in tools -%}"
    "{%- set parameters = tool.function.parameters or {} -%}"
    "{{- ' ' + tool.function.name + '(' + ((parameters.properties or {}) | join(', ')) + ')' -}}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "{{- '<|im_start|>assistant\\n' -}}"
    "{%- generation -%}"
    "{{- message.content or '' -}}"
    "{%- for call in message.tool_calls or [] -%}"
    "{%- set arguments = call.function.arguments -%}"
    "{{- '<tool_call>{\"name\": ' + (call.function.name | tojson) + ', \"arguments\": ' -}}"
    "{{- (arguments if arguments is string else (arguments | tojson)) + '}</tool_call>' -}}"
    "{%- endfor -%}"
    "{{- '<|im_end|>' -}}"
    "{%- endgeneration -%}"
    "{{- '\\n' -}}"
    "{%- elif message.role != 'system' or not loop.first -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""ChatML; tools are listed by name and parameters only, so that a prompt stays short."""


def render(messages: Sequence[Any], tools: Sequence[Any] | None = None) -> str:
    """A conversation's text under :data:`CHAT_TEMPLATE`: what the tokenizer is to be trained on."""
    rendered: Any = render_jinja_template(
        [list(messages)], tools=list(tools) if tools else None, chat_template=CHAT_TEMPLATE
    )
    return str(rendered[0][0])


def build_tiny_policy(
    directory: str | Path,
    texts: Iterable[str],
    *,
    hidden_size: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    mlp_size: int = 384,
    vocab_size: int = 448,
    max_model_len: int = 2048,
    seed: int = 0,
) -> Path:
    """Write an untrained policy and its tokenizer; about a second.

    Args:
        directory: where to; made if it is missing.
        texts: what the byte-level BPE is trained on; text unlike it still works, in more tokens.
        hidden_size: width of the residual stream; a multiple of ``heads``.
        layers: number of transformer blocks.
        heads: attention heads.
        kv_heads: key and value heads they share.
        mlp_size: width of the gated MLP.
        vocab_size: upper limit of the vocabulary, special tokens included; at least 262.
        max_model_len: prompt and reply together, in tokens.
        seed: of the weights; the caller's own random state is left alone.

    Returns:
        The directory.
    """
    tokenizer = _train_tokenizer(texts, vocab_size)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=mlp_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden_size // heads,
        max_position_embeddings=max_model_len,
        # The usual 0.02 leaves a model this narrow with too little signal to learn from.
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    target = Path(directory)
    tokenizer.save_pretrained(target)
    model.save_pretrained(target)
    return target


def _train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    # Digits apart, or a sum would be a word of its own to be learnt by heart.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(_TOOL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[_PAD, _START, _END],
        show_progress=False,
    )
    # The markup has tokens of its own: learning it as text would waste the vocabulary.
    markup = re.compile("|".join(map(re.escape, (_PAD, _START, _END, *_TOOL_TOKENS))))
    tokenizer.train_from_iterator((markup.split(text) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in _TOOL_TOKENS])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=_END,
        pad_token=_PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
