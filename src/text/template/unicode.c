/* Characters: UTF-8, classes and full case mappings. The tables are Python's
 * (tools/template_unicode.py). */
#include "text/template/value.h"

struct uni_range {
    uint32_t first, last;
};
struct uni_run {
    uint32_t first, last, step;
    int32_t delta;
};
struct uni_many {
    uint32_t cp, to[3];
};

#include "text/template/unicode_tables.h"

uint32_t sn_uni_next(const char *s, size_t n, size_t *i)
{
    const unsigned char *p = (const unsigned char *)s + *i;
    size_t left = n - *i;
    if (p[0] < 0x80 || left < 2 || p[0] < 0xC0) {
        *i += 1;
        return p[0] < 0x80 ? p[0] : 0xFFFD;
    }
    if (p[0] < 0xE0) {
        *i += 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0 && left >= 3) {
        *i += 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    if (left >= 4) {
        *i += 4;
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
               (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    }
    *i = n;
    return 0xFFFD;
}

size_t sn_uni_put(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t sn_uni_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

bool sn_uni_valid(const char *s, size_t n, size_t *bad)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80                ? 1
                     : c >= 0xC2 && c < 0xE0 ? 2
                     : c >= 0xE0 && c < 0xF0 ? 3
                     : c >= 0xF0 && c < 0xF5 ? 4
                                             : 0;
        *bad = i;
        if (len == 0 || len > n - i)
            return false;
        for (size_t k = 1; k < len; k++)
            if (((unsigned char)s[i + k] & 0xC0) != 0x80)
                return false;
        size_t at = i;
        uint32_t cp = sn_uni_next(s, n, &at);
        if ((len == 3 && cp < 0x800) || (len == 4 && cp < 0x10000) || cp > 0x10FFFF ||
            (cp >= 0xD800 && cp < 0xE000))
            return false;
        i += len;
    }
    return true;
}

static bool in_ranges(const struct uni_range *r, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > r[mid].last)
            lo = mid + 1;
        else if (cp < r[mid].first)
            hi = mid;
        else
            return true;
    }
    return false;
}

bool sn_uni_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool sn_uni_linebreak(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool sn_uni_alnum(uint32_t cp)
{
    return in_ranges(alnum_ranges, SN_ARRAY_LEN(alnum_ranges), cp);
}
bool sn_uni_alpha(uint32_t cp)
{
    return in_ranges(alpha_ranges, SN_ARRAY_LEN(alpha_ranges), cp);
}
bool sn_uni_digit(uint32_t cp)
{
    return in_ranges(digit_ranges, SN_ARRAY_LEN(digit_ranges), cp);
}
bool sn_uni_printable(uint32_t cp)
{
    return in_ranges(printable_ranges, SN_ARRAY_LEN(printable_ranges), cp);
}

static size_t map_many(const struct uni_many *m, size_t n, uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; i < n && m[i].cp <= cp; i++) {
        if (m[i].cp != cp)
            continue;
        memcpy(out, m[i].to, sizeof m[i].to);
        return out[2] ? 3 : 2;
    }
    return 0;
}

static size_t map_run(const struct uni_run *r, size_t n, uint32_t cp, uint32_t out[3])
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > r[mid].last) {
            lo = mid + 1;
        } else if (cp < r[mid].first) {
            hi = mid;
        } else {
            if ((cp - r[mid].first) % r[mid].step != 0)
                return 0;
            out[0] = (uint32_t)((int64_t)cp + r[mid].delta);
            return 1;
        }
    }
    return 0;
}

#define MAP(table)                                                                                 \
    (n = map_run(table##_runs, SN_ARRAY_LEN(table##_runs), cp, out)) != 0 ||                       \
        (n = map_many(table##_many, SN_ARRAY_LEN(table##_many), cp, out)) != 0

size_t sn_uni_case(enum sn_case mode, uint32_t cp, uint32_t out[3])
{
    size_t n;
    if (mode == SN_TITLE && (MAP(title)))
        return n;
    if (mode == SN_LOWER ? (MAP(lower)) : (MAP(upper)))
        return n;
    out[0] = cp;
    return 1;
}
