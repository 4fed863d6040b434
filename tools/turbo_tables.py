#!/usr/bin/env python3
"""Makes src/kernel/turbo_tables.h: the constants of TurboQuant values.

    tools/turbo_tables.py                   writes the header to standard output
    tools/turbo_tables.py --check FILE      leaves with 1 unless FILE is what would be written
    tools/turbo_tables.py --plain BITS      runs the plain iteration until it stands and prints how far it ends from
                                            the constants; many thousand rounds at 5 bits, hours at 8

Centroids: the Lloyd-Max quantizer of the unit normal with 2^bits levels, the fixed point of Lloyd's iteration (each
centroid moves to the mean of what lies nearest to it). The iteration itself closes in by a factor of about
1 - 1 / levels^2 a round, so the fixed point is found by Newton steps on it, in double, from quantiles of a wider
normal; the last rounds are plain ones. Only the positive half is computed: the quantizer is symmetric.

Thresholds: the exact midpoints of neighbouring centroids in f32, rounded down to f32, so that for an f32 z the code
is the number of thresholds below it, and a z right in the middle goes to the lower one. Behind the last: infinity.

Halves: of the 128 positive centroids of 8 bits, the low 16 bits of each, then the high 16 bits.

Signs: bit 0 of splitmix64 seeded with the head dimension, output by output; 1 stands for -1.
"""
import math
import struct
import sys

BITS = (2, 3, 4, 5, 8)
DIMS = (64, 128, 256, 512)


def density(x):
    return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def tail(x):
    return 0.5 * math.erfc(x / math.sqrt(2))


def legendre(n):
    """Nodes and weights of Gauss-Legendre quadrature on -1 .. 1."""
    out = []
    for i in range(n):
        x = math.cos(math.pi * (i + 0.75) / (n + 0.5))
        for _ in range(50):
            p, q = 1.0, 0.0
            for k in range(n):
                p, q = ((2 * k + 1) * x * p - k * q) / (k + 1), p
            slope = n * (x * p - q) / (x * x - 1)
            x -= p / slope
        out.append((x, 2 / ((1 - x * x) * slope * slope)))
    return out


NODES = legendre(24)


def cell(a, b):
    """Mean and mass of the unit normal between a and b. About the middle, so that narrow cells lose no digits."""
    if b == math.inf:
        return density(a) / tail(a), tail(a)
    m, h = (a + b) / 2, (b - a) / 2
    mass = first = 0.0
    for x, w in NODES:
        u = h * x
        e = w * math.exp(-m * u - 0.5 * u * u)
        mass += e
        first += e * u
    return m + first / mass, mass * h * density(m)


def cells(c):
    t = [0.0] + [(x + y) / 2 for x, y in zip(c, c[1:])] + [math.inf]
    return t, [cell(a, b) for a, b in zip(t, t[1:])]


def lloyd(c):
    return [mean for mean, _ in cells(c)[1]]


def newton(c):
    """One Newton step towards the fixed point of lloyd()."""
    t, found = cells(c)
    n = len(c)
    low, mid, high, rest = [0.0] * n, [1.0] * n, [0.0] * n, [0.0] * n
    for i, (mean, mass) in enumerate(found):
        rest[i] = mean - c[i]
        if i > 0:
            s = 0.5 * density(t[i]) * (mean - t[i]) / mass
            low[i] -= s
            mid[i] -= s
        if i + 1 < n:
            s = 0.5 * density(t[i + 1]) * (t[i + 1] - mean) / mass
            mid[i] -= s
            high[i] -= s
    for i in range(1, n):  # tridiagonal, eliminated downwards
        f = low[i] / mid[i - 1]
        mid[i] -= f * high[i - 1]
        rest[i] -= f * rest[i - 1]
    step = [0.0] * n
    for i in reversed(range(n)):
        step[i] = (rest[i] - (high[i] * step[i + 1] if i + 1 < n else 0.0)) / mid[i]
    return [x + d for x, d in zip(c, step)]


def quantile(p):
    """Of the unit normal, p >= 1/2, by bisection."""
    a, b = 0.0, 40.0
    for _ in range(200):
        m = (a + b) / 2
        a, b = (m, b) if tail(m) > 1 - p else (a, m)
    return a


def start(bits):
    n = 1 << (bits - 1)
    return [math.sqrt(3) * quantile((n + i + 0.5) / (2 * n)) for i in range(n)]


def centroids(bits):
    c = start(bits)
    for _ in range(40):
        c = newton(c)
        assert all(x < y for x, y in zip([0.0] + c, c))
    for _ in range(3):
        c = lloyd(c)
    assert max(abs(x - y) for x, y in zip(c, lloyd(c))) < 1e-14
    return c


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def next_below(x):
    """The f32 before the f32 x."""
    if x == 0:
        return -1.401298464324817e-45
    n = struct.unpack("<i", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<i", n - 1 if x > 0 else n + 1))[0]


def rounded_down(x):
    y = f32(x)
    return y if y <= x else next_below(y)


def levels(bits):
    half = [f32(x) for x in centroids(bits)]
    return [-x for x in reversed(half)] + half


def thresholds(c):
    return [rounded_down((x + y) / 2) for x, y in zip(c, c[1:])] + [math.inf]


def splitmix64(seed, n):
    mask = (1 << 64) - 1
    for i in range(n):
        z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        yield z ^ z >> 31


def literal(x):
    if x == math.inf:
        return "INFINITY"
    s = "%.9g" % x
    return s + ("f" if "." in s or "e" in s else ".0f")


def array(out, head, items, per_line):
    out.append(head + " = {")
    for i in range(0, len(items), per_line):
        out.append("    " + ", ".join(items[i:i + per_line]) + ",")
    out.append("};")


def header():
    out = ["/* Made by tools/turbo_tables.py; do not edit. */", "/* clang-format off */"]
    for bits in BITS:
        c = levels(bits)
        array(out, "static const float centroids_%d[%d]" % (bits, 1 << bits), [literal(x) for x in c], 6)
        array(out, "static const float thresholds_%d[%d]" % (bits, 1 << bits), [literal(x) for x in thresholds(c)], 6)
    bits_of = [struct.unpack("<I", struct.pack("<f", x))[0] for x in levels(8)[128:]]
    halves = ["0x%04X" % (b & 0xFFFF) for b in bits_of] + ["0x%04X" % (b >> 16) for b in bits_of]
    array(out, "static const uint16_t halves_8[256]", halves, 12)
    for d in DIMS:
        words = [0] * (d // 64)
        for i, z in enumerate(splitmix64(d, d)):
            words[i // 64] |= (z & 1) << (i % 64)
        array(out, "static const uint64_t signs_%d[%d]" % (d, d // 64), ["0x%016X" % w for w in words], 4)
    for d in DIMS:
        out.append("static const float norm_%d = %s;" % (d, literal(f32(1 / math.sqrt(d)))))
    return "\n".join(out) + "\n"


def plain(bits):
    c, want = start(bits), centroids(bits)
    rounds, moved = 0, 1.0
    while moved > 0 and rounds < 10**7:
        after = lloyd(c)
        moved = max(abs(x - y) for x, y in zip(c, after))
        c, rounds = after, rounds + 1
        if moved < 1e-15:
            break
    far = max(abs(x - y) for x, y in zip(c, want))
    print("%d bits: %d rounds of the plain iteration end %.3g from the fixed point" % (bits, rounds, far))


def main():
    if sys.argv[1:2] == ["--plain"] and len(sys.argv) == 3:
        plain(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        with open(sys.argv[2], encoding="ascii") as f:
            same = f.read() == header()
        print("%s is %s" % (sys.argv[2], "what the script makes" if same else "NOT what the script makes"))
        sys.exit(0 if same else 1)
    elif len(sys.argv) == 1:
        sys.stdout.write(header())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
