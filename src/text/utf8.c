#include "text/utf8.h"

/* Bounds of the second byte by lead byte: the whole of table 3-7 that is not "any continuation
 * byte". */
static void second_byte_bounds(unsigned lead, unsigned *lo, unsigned *hi)
{
    *lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

enum sn_utf8_kind sn_utf8_step(const char *s, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned lead = u[0];
    *len = 1;
    if (lead < 0x80)
        return SN_UTF8_OK;
    if (lead < 0xC2 || lead > 0xF4)
        return SN_UTF8_BAD;
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    unsigned lo, hi;
    second_byte_bounds(lead, &lo, &hi);
    for (size_t i = 1; i < need; i++) {
        *len = i;
        if (i == n)
            return SN_UTF8_SHORT;
        if (u[i] < lo || u[i] > hi)
            return SN_UTF8_BAD;
        lo = 0x80;
        hi = 0xBF;
    }
    *len = need;
    return SN_UTF8_OK;
}

uint32_t sn_utf8_code_point(const char *s, size_t len)
{
    static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = (unsigned char)s[0] & lead_mask[len];
    for (size_t i = 1; i < len; i++)
        c = c << 6 | ((unsigned char)s[i] & 0x3F);
    return c;
}

size_t sn_utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(lead[len] | c);
    return len;
}

size_t sn_utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight; /* ASCII runs are most of most texts: eight bytes at a time */
        if (n - i >= sizeof eight) {
            memcpy(&eight, s + i, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t len;
        if (sn_utf8_step(s + i, n - i, &len) != SN_UTF8_OK)
            return i;
        i += len;
    }
    return n;
}

sennit_status sn_utf8_replace(struct sn_buf *out, const char *s, size_t n, size_t *n_bad_bytes)
{
    while (n > 0) {
        size_t good = sn_utf8_valid_prefix(s, n);
        SN_TRY(sn_buf_append(out, s, good));
        s += good;
        n -= good;
        if (n == 0)
            break;
        size_t len;
        sn_utf8_step(s, n, &len);
        SN_TRY(sn_buf_append(out, SN_UTF8_REPLACEMENT, 3));
        if (n_bad_bytes)
            *n_bad_bytes += len;
        s += len;
        n -= len;
    }
    return SENNIT_OK;
}
