"""Writes the golden files in goldens/ with Hugging Face's CLIPTokenizer.

    pip install transformers open_clip_torch && python make_goldens.py

The vocabulary is CLIP's own, as open_clip brings it, cut to its first 8000 merges so that it can be committed, in
every form that it comes in; lines.bin.gz holds 10,000 texts and the ids of each. With the whole vocabulary:

    python make_goldens.py --full FOLDER       # also counts where open_clip disagrees with Hugging Face
    TPGM_TOKENIZER_GOLDENS=FOLDER build/bin/tests-text --gtest_filter=Tokenizer*Golden*
"""

import argparse
import gzip
import importlib.util
import json
import random
import struct
import tempfile
import unicodedata
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from transformers import CLIPTokenizer

HERE = Path(__file__).parent / "goldens"
START, END = "<|startoftext|>", "<|endoftext|>"
LIST = "bpe_simple_vocab_16e6.txt.gz"

WORDS = """a photo of the cat dog isn't it's we're they've i'm you'll he'd IT'S WE'RE I'M CAN'T rock'n'roll o'clock 's 't
''s '' 'S don't. Hello, World! e.g. U.S.A. 3.14159 2024-05-17 $9.99 #hashtag @user http://example.com/a?b=c&d=e
C++20 x^2+y^2 <b>bold</b> &amp; naïve café CAFÉ Straße STRASSE ẞ Ærøskøbing Łódź Ελλάδα ΟΔΥΣΣΕΥΣ ΣΑΣ σας İstanbul
ISPARTA ılık DIŞ Привет МИР ёлка ЙОД العربية ٣٤٥ مرحبا שלום עולם नमस्ते हिन्दी १२३ สวัสดี ๑๒๓ ភាសា 日本語 カタカナ ｶﾀｶﾅ ガ
中文字符 漢字 한국어 조선말 ꦗꦮ ᏣᎳᎩ ᏸ Ꮳ ქართული ᲥᲐᲠ ⴀ Հայ ﬁ ﬀ ĳ Ĳ ǅ Ǆ ŉ ½ ² ³ ¹ ⁴ ₅ Ⅷ ⅷ ① ⑳ ㉈ ㊷ 〇 ๓ ߁ 𝟘 𝒜𝓫 𝕏 𝔉𝔯 ℵ Ω Å ℡ № ™ © ® € ¿
¡ « » “ ” ‘ ’ … – — • · † ‰ ª º µ ʼ ˈ ´ ¨ ~ ` ^ _ \\ | 👍 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇺🇳 ❤️ ☃ ✨ 🧿 😀😀😀""".split()
SPECIAL = [START, END, START.upper(), END.upper(), "<|StartOfText|>", START + "!", "!" + END, START + END, END.upper() + "'s",
           START.upper() + START, "<|startoftext", "|>", "<|", "<|startoftext|", "<start_of_text>", END * 3]
SPACES = [chr(c) for c in [0x20] * 12 + [0x9, 0xA, 0xB, 0xC, 0xD, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
                                         0x202F, 0x205F, 0x3000]] + ["\r\n", "  ", " \t\n"]
INVISIBLE = [chr(c) for c in [*range(0, 9), *range(0xE, 0x20), 0x7F, *range(0x80, 0x85), 0x9F, 0xAD, 0x34F, 0x61C, 0x180E,
                              *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFE0F, 0xFEFF,
                              0xFFF9, 0xE0001, 0xE0067, 0xE007F, 0xE0100]]
MARKS = [chr(c) for c in [*range(0x300, 0x370), 0x483, 0x591, 0x5B0, 0x5C1, 0x64B, 0x651, 0x670, 0x6D6, 0x93C, 0x94D, 0x9BE, 0xDCF,
                          0xE38, 0xE48, 0xEB8, 0xF71, 0xF72, 0xF74, 0x1037, 0x1DC4, 0x20D0, 0x20E3, 0x302A, 0x3099, 0x309A,
                          0xA806, 0xFB1E, 0xFE20, 0x1D165, 0x1D16D, 0x1E8D0]]
BASES = "aeiouyAEIOUYncszgEoOωΩυαΑηιИиЕеכש가각ᄀかはウ्କ"
# Nothing newer than Unicode 12, so that every table knows it; see also random_character.
RANGES = [(0x21, 0x7E), (0xA1, 0x17F), (0x180, 0x24F), (0x250, 0x2AF), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x556),
          (0x5D0, 0x5EA), (0x620, 0x64A), (0x660, 0x669), (0x6F0, 0x6F9), (0x904, 0x939), (0x966, 0x96F), (0x9E6, 0x9EF),
          (0xE01, 0xE3A), (0xE50, 0xE59), (0xF20, 0xF33), (0x10A0, 0x10C5), (0x10D0, 0x10FA), (0x1100, 0x11FF),
          (0x1369, 0x137C), (0x13A0, 0x13F5), (0x16EE, 0x16F0), (0x1C90, 0x1CBA), (0x1D00, 0x1DBF), (0x1E00, 0x1FBC),
          (0x2010, 0x2027), (0x2070, 0x209C), (0x2100, 0x218B), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2600, 0x27BF),
          (0x2C00, 0x2C2E), (0x2C80, 0x2CF3), (0x3001, 0x303F), (0x3041, 0x3096), (0x30A1, 0x30FF), (0x3131, 0x318E),
          (0x3220, 0x32FE), (0x4E00, 0x9FEF), (0xA640, 0xA66D), (0xA722, 0xA787), (0xAB70, 0xABBF), (0xAC00, 0xD7A3),
          (0xE000, 0xE010), (0xF900, 0xFA6D), (0xFB00, 0xFB06), (0xFB1D, 0xFB4F), (0xFDD0, 0xFDEF), (0xFE70, 0xFE74),
          (0xFF01, 0xFFBE), (0xFFF0, 0xFFFF), (0x10000, 0x1000B), (0x10107, 0x10133), (0x10140, 0x10178),
          (0x10400, 0x1044F), (0x104B0, 0x104FB), (0x10C80, 0x10CF2), (0x118A0, 0x118F2), (0x12400, 0x1246E),
          (0x16E40, 0x16E9A), (0x1D15E, 0x1D164), (0x1D400, 0x1D6A5), (0x1D7CE, 0x1D7FF), (0x1E900, 0x1E943),
          (0x1F100, 0x1F10C), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F64F), (0x1F3FB, 0x1F3FF), (0x1F900, 0x1F9FF),
          (0x1FFFE, 0x1FFFF), (0x20000, 0x20040), (0x2F800, 0x2FA1D), (0x5FFF0, 0x5FFFF), (0xF0000, 0xF0008), (0x10FFFE, 0x10FFFF)]
BROKEN = [b"\x80", b"\xbf\xbf", b"\xc0\xaf", b"\xc3", b"\xe2\x82", b"\xe0\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf0\x9f\x98",
          b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80", b"\xff\xfe", b"\xe2\x28\xa1", b"\xf0\x9f<|endoftext|>",
          b"\xc3'\xa9", b"\xf1\x80\x80a", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"]


def letters():
    """open_clip's order of the letters that stand for bytes."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return [chr(c) for c in seen] + [chr(256 + i) for i in range(len(rest))]


def open_clip_folder():
    return Path(importlib.util.find_spec("open_clip").submodule_search_locations[0])


def random_character(source, low, high):
    """Not one that a later Unicode may assign: of those without a meaning only the ones that will never have one, and
    plane 5."""
    while True:
        code = source.randint(low, high)
        if unicodedata.category(chr(code)) != "Cn" or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF or code >> 16 == 5:
            return chr(code)


def word(source, extra):
    kind = source.random()
    if kind < 0.35:
        return source.choice(WORDS)
    if kind < 0.41:
        return source.choice(SPECIAL + extra)
    if kind < 0.46:
        return source.choice(BASES) + "".join(source.choices(MARKS, k=source.randint(1, 4)))
    if kind < 0.50:
        return source.choice(INVISIBLE)
    if kind < 0.53:
        return source.choice(WORDS).upper() + source.choice(["'S", "'LL", "'re", "'D", "’s", "'"])
    if kind < 0.56:
        return "".join(chr(source.choice([0x1100 + source.randrange(19), 0x1161 + source.randrange(21),
                                          0x11A7 + source.randrange(28), 0xAC00 + 28 * source.randrange(399)]))
                       for _ in range(3))
    if kind < 0.75:
        low, high = source.choice(RANGES)
        return "".join(random_character(source, low, high) for _ in range(source.randint(1, 4)))
    if kind < 0.80:
        return "".join(random_character(source, *source.choice(RANGES)) for _ in range(source.randint(1, 6)))
    if kind < 0.90:
        return "".join(source.choices("etaoinshrdlucmfwypvbgkjqxz", k=source.randint(1, 12)))
    return str(source.randrange(10**source.randint(1, 6)))


def lines(count, seed, extra=()):
    """Texts as bytes; some of them are not UTF-8."""
    source = random.Random(seed)
    result = [b"", b" ", b"\x00", b"'", "\u3000\u2028".encode(), b"a" * 3000, "é".encode() * 500, b"x'" * 300, b"1" * 200,
              ("a" + "\u0301\u0323" * 400).encode(), "\u0345\u0334".encode() * 100, b"the" * 700, END.encode() * 40,
              " ".join(f"word{i}" for i in range(120)).encode()]
    while len(result) < count:
        kind = source.random()
        size = source.choice([1, 1, 2, 2, 3, 3, 4, 6])
        text = "".join(word(source, list(extra)) + source.choice([source.choice(SPACES), "", " "]) for _ in range(size))
        line = text.encode()
        if kind < 0.04:
            at = source.randrange(len(line) + 1)
            line = line[:at] + source.choice(BROKEN) + line[at:]
        elif kind < 0.05:
            line = line[:source.randrange(len(line) + 1)]
        elif kind < 0.25:
            line = " ".join(source.choices([w for w in WORDS if w.isascii()], k=source.randint(1, 8))).encode()
        result.append(line)
    return result


def text_of(line):
    return line.decode("utf-8", errors="replace")


def write_gzip(path, content):
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(content)


def write_lines(path, tokenizer, texts):
    ids = tokenizer([text_of(text) for text in texts], add_special_tokens=False)["input_ids"]
    write_gzip(path, b"".join(struct.pack("<I", len(text)) + text + struct.pack(f"<I{len(row)}H", len(row), *row)
                              for text, row in zip(texts, ids)))
    return ids


def write_vocabulary(folder, title, merges):
    """vocab.json with merges.txt, the list of merges, and tokenizer.json as transformers saves it. Returns the last."""
    for name in ["pair", "list", "saved"]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    tokens = letters()
    tokens += [token + "</w>" for token in tokens] + ["".join(merge) for merge in merges] + [START, END]
    (folder / "pair" / "vocab.json").write_text(
        json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False), encoding="utf-8")
    text = "".join(f"{left} {right}\n" for left, right in merges)
    (folder / "pair" / "merges.txt").write_text("#version: 0.2\n" + text, encoding="utf-8")
    write_gzip(folder / "list" / LIST, f"{title}\n{text}".encode())
    tokenizer = CLIPTokenizer.from_pretrained(folder / "pair")
    with tempfile.TemporaryDirectory() as saved:
        tokenizer.save_pretrained(saved)
        write_gzip(folder / "saved" / "tokenizer.json.gz", (Path(saved) / "tokenizer.json").read_bytes())
        return CLIPTokenizer.from_pretrained(saved)


def write_batches(path, tokenizer, texts):
    texts = [text_of(text) for text in texts]
    save_file({f"context_{context}": np.array(tokenizer(texts, padding="max_length", truncation=True, max_length=context)
                                              ["input_ids"], dtype=np.int32) for context in [77, 8, 3, 2]}, path)


def write_unusual(folder, tokenizer_json, texts):
    """A tokenizer.json with all that it may have and CLIP's has not: merges as text, added tokens of several kinds, bytes
    that are not tokens."""
    folder.mkdir(exist_ok=True)
    content = json.loads(gzip.decompress(tokenizer_json.read_bytes()))
    model = content["model"]
    gone = {"q", "q</w>", "7</w>", "ð"}
    tokens = [token for token in model["vocab"] if token not in gone and model["vocab"][token] < 512]
    merges = []
    for left, right in model["merges"][:600]:
        if left in tokens and right in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    tokens.append(END)
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    model["merges"] = [" ".join(merge) for merge in merges]
    ids = dict(model["vocab"])
    added = [(START, True), (END, False), ("!", False), ("New  York", True), ("<new>", False), ("<new>É", False),
             ("CAFE\u0301", True), ("日本", False), ("ing", False)]
    content["added_tokens"] = [
        {"id": ids.setdefault(token, len(ids)), "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": normalized, "special": i < 3} for i, (token, normalized) in enumerate(added)]
    text = json.dumps(content, ensure_ascii=False)
    write_gzip(folder / "tokenizer.json.gz", text.encode())
    with tempfile.TemporaryDirectory() as plain:
        (Path(plain) / "tokenizer.json").write_text(text, encoding="utf-8")
        tokenizer = CLIPTokenizer.from_pretrained(plain)
    known = {token.content: i for i, token in tokenizer.added_tokens_decoder.items()}
    assert known == {token: ids[token] for token, _ in added}, known
    write_lines(folder / "lines.bin.gz", tokenizer, texts)


def compare_with_open_clip(texts, ids):
    path = open_clip_folder() / "tokenizer.py"  # without the package, which wants torchvision
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tokenizer = module.SimpleTokenizer()
    clean = [i for i, text in enumerate(texts) if text.isascii() and text_of(text).isprintable() and b"<|" not in text
             and b"&" not in text and b"<start_of_text>" not in text]
    different = [i for i in clean if tokenizer.encode(text_of(texts[i])) != ids[i]]
    print(f"open_clip: {len(clean)} lines of clean ASCII, {len(different)} differ from Hugging Face",
          [text_of(texts[i])[:80] for i in different[:5]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", type=Path, metavar="FOLDER", help="write those of the whole vocabulary there instead")
    arguments = parser.parse_args()
    folder = arguments.full or HERE
    title, *merges = gzip.decompress((open_clip_folder() / LIST).read_bytes()).decode().split("\n")
    merges = [tuple(merge.split()) for merge in merges[:49152 - 256 - 2 if arguments.full else 8000]]
    tokenizer = write_vocabulary(folder, title, merges)
    if arguments.full:  # with the merges that are not used
        (folder / "list" / LIST).write_bytes((open_clip_folder() / LIST).read_bytes())
    texts = lines(10_000, seed=0)
    ids = write_lines(folder / "lines.bin.gz", tokenizer, texts)
    assert ids == CLIPTokenizer.from_pretrained(folder / "pair")(
        [text_of(text) for text in texts], add_special_tokens=False)["input_ids"]
    write_batches(folder / "batches.safetensors", tokenizer, texts[:64])
    write_unusual(folder / "unusual", folder / "saved" / "tokenizer.json.gz",
                  lines(800, seed=1, extra=["new  york", "NEW\u3000YORK", "New York", "<new>", "<new>É", "<new>e", "<NEW>", "!", "café",
                                            "CAFÉ", "日本", "日本語", "ING", "singing", "quiz 7 Q", "747", "😀q"] * 4))
    if arguments.full:
        compare_with_open_clip(texts, ids)
    files = [path for path in folder.rglob("*") if path.is_file()]
    print(f"{folder}: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
