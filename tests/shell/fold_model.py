"""A tiny scripted model for comparing streamed and single answers of a real llama-server.

No block does anything; the output matrix maps each token to its successor, so that greedy decoding replays a text.
A word in the last message (`THINK`, `TOOL`, ...) chooses the text: the template appends that text's start token.
"""

from __future__ import annotations

import random
from pathlib import Path

import gguf
import numpy as np

WIDTH = 256
FEED_FORWARD = 32
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6  # token types of the SentencePiece kind
END = 2  # index of the end token

TEXTS = {
    "HELLO": "Hello there, I am a toy. STOP here and go on a bit more.",
    "THINK": "<think>\nLet me ponder.\n</think>\n\nForty-two it is.",
    "TOOL": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "c"}}\n</tool_call>',
    "PAIR": 'Sure, both.\n<tool_call>\n{"name": "alpha", "arguments": {"x": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "beta", "arguments": {}}\n</tool_call>',
    "SIGNS": "ü€😀 züge — naïve 日本語です",
    "EMPTY": "<think>\n\n</think>\n\n",
    "LITERAL": 'say "prompt_progress": {} and end',
}

TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\nTools:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' and message.reasoning_content %}
        {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
    {%- endif %}
    {%- if message.content is string %}{{- message.content }}{%- endif %}
    {%- for call in message.tool_calls or [] %}
        {%- set call = call.function %}
        {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
        {{- (call.arguments if call.arguments is string else call.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- set words = messages[-1].content or '' %}
    {%- for name in NAMES %}{%- if name in words %}{{- '<|' + name + '|>' }}{%- endif %}{%- endfor %}
{%- endif %}
"""


def write_fold_model(path: Path) -> None:
    """Write the model; about 0.6 MB."""
    tokens, types, successor = _vocabulary()
    noise = np.random.default_rng(1).standard_normal((len(tokens), WIDTH)).astype(np.float32)
    embedding = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    output = np.zeros_like(embedding)
    for token, following in successor.items():
        output[following] += 40 * embedding[token]
    writer = gguf.GGUFWriter(str(path), "llama")
    _write_header(writer, tokens, types)
    writer.add_tensor("token_embd.weight", embedding.astype(np.float16))
    writer.add_tensor("output.weight", output.astype(np.float16))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((WIDTH, WIDTH), np.float16))
    writer.add_tensor("blk.0.ffn_gate.weight", np.zeros((FEED_FORWARD, WIDTH), np.float16))
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((FEED_FORWARD, WIDTH), np.float16))
    writer.add_tensor("blk.0.ffn_down.weight", np.zeros((WIDTH, FEED_FORWARD), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_header(writer: gguf.GGUFWriter, tokens: list[bytes], types: list[int]) -> None:
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(index) for index in range(len(tokens))])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    names = "[" + ", ".join(f"'{name}'" for name in TEXTS) + "]"
    writer.add_chat_template(TEMPLATE.replace("NAMES", names).strip())


def _vocabulary() -> tuple[list[bytes], list[int], dict[int, int]]:
    tokens = [b"<unk>", b"<s>", b"<|im_end|>", b"<|im_start|>", *(b"<0x%02X>" % byte for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, CONTROL, *([BYTE] * 256)]
    taken = set(tokens)
    successor: dict[int, int] = {}
    for name, text in TEXTS.items():
        pieces = _pieces(text.encode(), taken)
        taken.update(pieces)
        start = len(tokens)
        tokens += [f"<|{name}|>".encode(), *pieces]
        types += [CONTROL, *([NORMAL] * len(pieces))]
        successor.update((token, token + 1) for token in range(start, len(tokens) - 1))
        successor[len(tokens) - 1] = END
    return tokens, types, successor


def _pieces(text: bytes, taken: set[bytes]) -> list[bytes]:
    """Cut into pieces of 2 to 9 bytes that occur nowhere else: llama.cpp wants every token's text unique."""
    choice = random.Random(text)
    while True:
        pieces: list[bytes] = []
        rest = text
        while rest:
            sizes = [n for n in range(2, min(9, len(rest)) + 1) if rest[:n] not in taken and rest[:n] not in pieces]
            if not sizes:
                break
            pieces.append(rest[: choice.choice(sizes)])
            rest = rest[len(pieces[-1]) :]
        if not rest:
            return pieces
