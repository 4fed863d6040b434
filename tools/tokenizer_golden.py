#!/usr/bin/env python3
"""Makes tests/text/golden/*.json: hard strings and the ids that the reference tokenizers give them.

How the committed files were made (versions are also recorded inside each file):

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 gguf numpy
    venv/bin/python tools/tokenizer_golden.py --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

  strings.json       500 hard strings, deterministic from --seed (JSON escapes; they hold NUL and non-characters)
  utf8.json          random bytes as hex, and what bytes.decode("utf-8", errors="replace") makes of them, as hex
  smollm2.json       ids of the 500 strings by a `tokenizers` BPE built from the vocabulary and merges of the GGUF
                     file (pre-tokenizer: single digits, then byte level), and of strings with its control tokens;
                     the vocabulary itself is not stored. If llama-cpp-python is importable, the strings for which
                     llama.cpp gives other ids are listed, with its ids.
  twin-<pre>.json    for each pre-tokenizer a small BPE trained here (vocabulary, merges), and the ids of the 500
                     strings by `tokenizers` with the pre-tokenizer of the family's published tokenizer.json.

Nothing is read but the GGUF file; nothing is fetched.
"""
import argparse
import json
import random
import sys
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

N_STRINGS = 500

# ---- strings ---------------------------------------------------------------------------------------------------

EMOJI = ["😀", "🚀", "😶‍🌫️", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "☕", "✅", "🧑🏿‍🚀", "1️⃣", "©️", "🫠"]
MARKS = ["e\u0301", "a\u0308\u0323", "Z\u0351\u036b\u0343\u036a", "n\u0303", "o\u0302\u0301", "\u0301alone", "i\u0307", "ẹ\u0301", "q\u0323\u0307"]
CJK = ["我想在苹果工作", "日本語のテキスト", "한국어 문장입니다", "ひらがなカタカナ", "漢字かな交じり文", "𠀀𠮷野家", "「引用」、。！？",
       "全角ＡＢＣ１２３", "ㄅㄆㄇ", "〇一二三", "ﾊﾝｶｸ"]
SCRIPTS = ["نص عربي", "שלום עולם", "हिन्दी में पाठ", "ภาษาไทย", "Ελληνικά κείμενο", "Кириллица и ещё", "বাংলা লেখা", "தமிழ் உரை",
           "ქართული", "Հայերեն", "አማርኛ", "ភាសាខ្មែរ", "မြန်မာ", "ትግርኛ", "ᚠᚢᚦ", "𐐀𐐨", "ꙮ", "Ǆǅǆ", "ʹʺˈ", "ªº", "ßẞſ"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\t\t", "\u00a0", "\u2003", "\u3000", "\u1680", "\u2028", "\u2029",
          "\u0085", "\x0b", "\x0c", "\u202f", "\u205f", "\u180e", "\u200b", "\ufeff", "\u2060", "\x1c", "\x1f", "\u200d", "\u200a"]
DIGITS = ["0", "7", "42", "123", "1234", "12345678", "3.14159", "1,234,567.89", "²³¹", "½¾", "Ⅷ", "٣٤٥", "१२३", "1e-9", "0x1F", "①②", "𝟘𝟙𝟚",
          "一二", "৪৫", "²3²", "1st", "v2.0.1", "2024-02-29", "+49 30 1234", "00:00:01.000"]
CONTRACTIONS = ["I'm", "don't", "we'LL", "they'Ve", "IT'S", "you’re", "'s", "'T", "he'd've", "o'clock", "rock'n'roll", "'tis", "y'all", "''s",
                "'ſ", "x'ſt", "'re'll", "I'M", "can’T", "'Ll", "'vE", "'D", "d'être", "'" * 5, "l'été", "' s"]
PUNCT = ["!", "...", "?!", "--", "—", "–", "(x)", "[y]", "{z}", "#$%", "&*", "@@", "\\\\", "||", "^^", "~", "`code`", "\"q\"", "“q”", "«g»", "¿¡", "…",
         "§", "¶", "†‡", "•", "‰", "′″", "‽", "⁂", "$+<=>^~|`", "€£¥", "±×÷", "≠≤", "→⇒", "∀∃", "░▒▓", "😊!", "。、", "،؟", "।", "፡።", "-_-", "=>", "::", "<<", "/**/"]
CODE = ["def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}\n", "SELECT * FROM t WHERE a='b';", "<div class=\"a\">&nbsp;</div>",
        "#include <stdio.h>\r\n", "x = {'k': [1, 2, 3]}\n\n\n# end\n", "\\frac{1}{2}", "https://example.org/a?b=c&d=%20#e", "printf(\"%5.2f\\n\", x);",
        "λx.x", "if (!a&&b||c) return~0;", "let mut v: Vec<u8> = vec![0; 16];", "$HOME/.config/*.d", "\t\tif x:\n\t\t\tpass", "user@host:~$ ls -la | grep '^d'",
        "camelCaseWord", "SCREAMING_SNAKE", "HTTPServerError", "kebab-case-x", "a.b.c->d::e"]
ODD = ["\x00", "a\x00b", "\x00\x00\x00", "\ufffd", "\ufffd\ufffd", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff", "\ue000", "\U000f0000", "\u0378", "\U000e0080",
       "\u00ad", "\x7f", "\x80", "\x01\x02\x03", "\x04\x06\x13", "\x1b[0m", "\u061c", "\u2066x\u2069", "\U000e0041", "\ufe0f", "\u034f", "\u115f", "\ufdd0", "\u0600"]
TAGLIKE = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<s>", "</s>", "[INST]", "<|", "|>", "<|im_", "<repo_name>", "<unk>",
           "<|eot_id|>", "<｜begin▁of▁sentence｜>", "<0x0A>", "Ġ", "ĠHello", "Ċ", "âĢĻ", "▁the", "õ"]
WORDS = ("the of and to in is was for that with as his on be at by had it not are from have or which one all we an there been their has would "
         "internationalization antidisestablishmentarianism Hello World quick brown fox jumps over lazy dog Straße naïve café résumé Zürich "
         "München fiancée coöperate tokenizer pre-tokenizer nonbreaking whitespace newline Unicode").split()


def long_strings():
    return ["a" * 3000, "ab" * 1500, " " * 2000, "\n" * 700, "\r\n" * 400, "Donaudampfschifffahrtsgesellschaft" * 40, "é" * 800, "漢" * 600,
            "7" * 1001, "!" * 900, "=" * 333 + ">" * 333, "🚀" * 200, "e\u0301" * 400, " a" * 500, " \n" * 300 + "x", " " * 511 + "x", " " * 1025 + "\n",
            "xX" * 400, "'s" * 300, "\t" * 300 + "1", "AbCdEf" * 150, "\u3000" * 200 + "。", "1a" * 300, "-" * 80 + "\n" + "=" * 80]


def make_strings(seed):
    rng = random.Random(seed)
    singles = EMOJI + MARKS + CJK + SCRIPTS + SPACES + DIGITS + CONTRACTIONS + PUNCT + CODE + ODD + TAGLIKE
    out = [""] + singles + long_strings()
    pools = [EMOJI, MARKS, CJK, SCRIPTS, DIGITS, CONTRACTIONS, PUNCT, CODE, ODD, TAGLIKE, WORDS]
    out = list(dict.fromkeys(out))
    while len(out) < N_STRINGS:
        kind = rng.randrange(4)
        n = rng.randint(2, 12)
        if kind == 0:    # everything mixed, spaces of all kinds between
            s = "".join(rng.choice(rng.choice(pools)) + (rng.choice(SPACES) if rng.random() < 0.6 else "") for _ in range(n))
        elif kind == 1:  # words with contractions and digits
            s = " ".join(rng.choice(rng.choice([WORDS, WORDS, CONTRACTIONS, DIGITS])) for _ in range(n)) + rng.choice(PUNCT)
        elif kind == 2:  # runs of spaces around short things
            s = "".join(rng.choice(SPACES) * rng.randint(1, 5) + rng.choice(WORDS + PUNCT + DIGITS) * (rng.random() < 0.7) for _ in range(n))
        else:            # random assigned letters, marks, numbers, symbols of the oldest blocks, stable across Unicode versions
            s = "".join(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x3B1, 0x3C9), rng.randrange(0x410, 0x450), rng.randrange(0x5D0, 0x5EA),
                                        rng.randrange(0x4E00, 0x9F00), rng.randrange(0xAC00, 0xD7A0), rng.randrange(0x2190, 0x2200), 0x20])) for _ in range(3 * n))
        if s not in out:
            out.append(s)
    assert len(out) == N_STRINGS, len(out)
    return out


def corpus(strings):
    """Text to train the small vocabularies on: enough repetition for merges of every kind."""
    rng = random.Random(7)
    lines = [s for s in strings if len(s) < 300] * 3
    for _ in range(3000):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(10)) + rng.choice(["\n", ". ", "  \n", "!\r\n", "\t"]) + rng.choice(DIGITS + CONTRACTIONS))
    return lines


def utf8_cases(seed):
    rng = random.Random(seed)
    edge = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    cases = [b"", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x80\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"]
    cases += [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in edge for b in edge]
    cases += [bytes(rng.choice(edge) for _ in range(rng.randint(3, 12))) for _ in range(700)]
    cases += [bytes(rng.randrange(256) for _ in range(rng.randint(1, 40))) for _ in range(200)]
    for _ in range(100):  # good text with a byte changed or cut
        b = bytearray("aé漢🚀z".encode() * 2)
        b[rng.randrange(len(b))] = rng.randrange(256)
        cases.append(bytes(b[: rng.randrange(1, len(b) + 1)]))
    return [[c.hex(), c.decode("utf-8", errors="replace").encode().hex()] for c in cases]


# ---- reference pre-tokenizers, as the published tokenizer.json files have them -----------------------------------

def split(pattern):
    return Split(Regex(pattern), behavior="isolated")


def byte_level(regex):
    return ByteLevel(add_prefix_space=False, use_regex=regex)


TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
CJK_CODER = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?" + UP + "*" + LOW + "+{s}|" + r"[^\r\n\p{L}\p{N}]?" + UP + "+" + LOW + "*{s}|{d}" + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(suffix, digits):
    return CASED.replace("{s}", suffix).replace("{d}", digits)


LETTERS_LLM = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386"
               "\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
               "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
               "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
               "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
               "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
               "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
               "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
TWINS = {
    "gpt-2": byte_level(True),
    "smollm": Sequence([Digits(individual_digits=True), byte_level(True)]),
    "starcoder": Sequence([Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": Sequence([split(LLAMA3), byte_level(False)]),
    "qwen2": Sequence([split(QWEN2), byte_level(False)]),
    "deepseek-coder": Sequence([split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK_CODER), Digits(individual_digits=True), byte_level(False)]),
    "deepseek-llm": Sequence([split(r"[\r\n]"), split(r"\s?[" + LETTERS_LLM + "]+"), split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
                              split(r"\s+$"), split(CJK_CODER), split(r"\p{N}+"), byte_level(False)]),
    "deepseek-v3": Sequence([split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                             split(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
                                   r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""), byte_level(False)]),
    "falcon": Sequence([Punctuation("contiguous"), byte_level(True), split(r"[0-9][0-9][0-9]")]),
    "tekken": Sequence([split(cased("", r"\p{N}")), byte_level(False)]),
    "gpt-4o": Sequence([split(cased(CONTRACT + "?", r"\p{N}{1,3}")), byte_level(False)]),
}
IGNORE_MERGES = {"llama-bpe", "tekken"}
MISSING_BYTES = {"starcoder": [0x00, 0x04, 0xF0, 0xE2, 0xA0], "falcon": [0x03, 0x04, 0x0B, 0xE3]}
VOCAB = {"gpt-2": 1200, "llama-bpe": 1200, "qwen2": 1200, "deepseek-coder": 1200, "falcon": 1200, "starcoder": 1200}


def alphabet():
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 255 and b != 173]
    rest = [b for b in range(256) if b not in own]
    table = {b: chr(b) for b in own}
    table.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return table


def train_twin(pre, lines):
    chars = alphabet()
    gone = {chars[b] for b in MISSING_BYTES.get(pre, [])}
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = TWINS[pre]
    trainer = trainers.BpeTrainer(vocab_size=VOCAB.get(pre, 500), show_progress=False, min_frequency=2, initial_alphabet=sorted(chars.values()))
    tok.train_from_iterator(lines, trainer)
    model = json.loads(tok.to_str())["model"]
    merges = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    merges = [m for m in merges if not gone & set(m[0] + m[1])]
    tokens = [t for t in sorted(model["vocab"], key=model["vocab"].get) if not gone & set(t)]
    if pre in IGNORE_MERGES:  # whole words that no merge reaches
        tokens += [t for t in ["Ġinternationalization", "Zürich", "IT", "ĠĠĠĠĠ", "ðŁļĢ"] if t not in tokens]
    return tokens, merges


def twin(pre, tokens, merges):
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m) for m in merges], ignore_merges=pre in IGNORE_MERGES))
    tok.pre_tokenizer = TWINS[pre]
    return tok


# ---- SmolLM2 -------------------------------------------------------------------------------------------------------

def special_strings():
    return ["<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>b", "<|im_end|><|im_end|>", "<|im_start|", "x <|endoftext|>", "<repo_name>a/b<file_sep>c",
            "<|im_<|im_start|>start|>", "<reponame>", "<repo_name", "  <|im_end|>  \n\n", "é<|im_end|>😀", "<|IM_END|>", "", "<issue_start>1<issue_comment>2<issue_closed>"]


def smollm2(path, strings):
    import gguf
    reader = gguf.GGUFReader(path)
    get = lambda key: reader.fields["tokenizer.ggml." + key].contents()
    tokens, types = get("tokens"), get("token_type")
    merges = [tuple(m.split(" ")) for m in get("merges")]
    plain = twin("smollm", tokens, merges)
    tagged = twin("smollm", tokens, merges)
    tagged.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])
    out = {"ids": [plain.encode(s).ids for s in strings],
           "special": [{"text": s, "ids": tagged.encode(s, add_special_tokens=False).ids} for s in special_strings()]}
    out["llama_cpp"] = compare_llama_cpp(path, strings, out["ids"], tokens)
    return out, len(tokens)


def compare_llama_cpp(path, strings, ids, tokens):
    try:
        import llama_cpp
    except ImportError:
        return {"version": None, "note": "llama-cpp-python was not importable when this file was made"}
    model = llama_cpp.Llama(model_path=path, vocab_only=True, verbose=False)
    differ = []
    for i, s in enumerate(strings):
        got = model.tokenize(s.encode(), add_bos=False, special=False)
        if got != ids[i]:
            differ.append({"string": i, "ids": got})
    return {"version": llama_cpp.__version__, "differ": differ}


# ---- main ------------------------------------------------------------------------------------------------------------

def write(path, data):
    """One entry of the top level per line, lists of lists one per line: small, and a change shows in a diff."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
            body = "[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in value) + "\n]"
        else:
            body = json.dumps(value, separators=(",", ":"))
        parts.append(json.dumps(key) + ": " + body)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"{path} {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "tests/text/golden")
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct GGUF file; without it smollm2.json is left as it is")
    parser.add_argument("--seed", type=int, default=20240229)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    made = {"made_by": "tools/tokenizer_golden.py", "python": sys.version.split()[0], "tokenizers": tokenizers.__version__, "seed": args.seed}
    strings = make_strings(args.seed)
    write(args.out / "strings.json", {**made, "strings": [[s] for s in strings]})
    write(args.out / "utf8.json", {**made, "cases": utf8_cases(args.seed)})
    lines = corpus(strings)
    for pre in TWINS:
        if pre == "smollm":
            continue
        tokens, merges = train_twin(pre, lines)
        ids = [twin(pre, tokens, merges).encode(s).ids for s in strings]
        write(args.out / f"twin-{pre}.json", {**made, "pre": pre, "tokens": tokens, "merges": [" ".join(m) for m in merges], "ids": ids})
    if args.smollm2:
        data, n = smollm2(args.smollm2, strings)
        write(args.out / "smollm2.json", {**made, "n_tokens": n, **data})


if __name__ == "__main__":
    main()
