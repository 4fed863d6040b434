/* The cursor, and the metadata section. */
#include "format/gguf_internal.h"

#include <stdio.h>

/* ---- cursor ---------------------------------------------------------------------------------- */

const char *gguf_shown(struct sn_gguf_str s, char out[GGUF_SHOWN_NAME])
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char ch = (unsigned char)s.data[i];
        if (n > GGUF_SHOWN_NAME - 9) { /* room for one more \xNN, "..." and NUL */
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        if (ch >= ' ' && ch <= '~' && ch != '\\' && ch != '\'')
            out[n++] = (char)ch;
        else
            n += (size_t)snprintf(out + n, 5, "\\x%02x", ch);
    }
    out[n] = '\0';
    return out;
}

sennit_status gguf_fail(const struct gguf_cursor *c, sennit_status status, size_t at,
                        const char *fmt, ...)
{
    char text[400], name[GGUF_SHOWN_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->name.data)
        return sn_fail(c->err, status, "%s '%s' (byte %zu): %s", c->kind, gguf_shown(c->name, name),
                       at, text);
    return sn_fail(c->err, status, "%s number %zu (byte %zu): %s", c->kind, c->index, at, text);
}

sennit_status gguf_need(const struct gguf_cursor *c, uint64_t n, const char *field)
{
    size_t left = c->g->n_bytes - c->at;
    if (n <= left)
        return SENNIT_OK;
    return gguf_fail(c, SENNIT_FORMAT, c->at,
                     "the %s needs %llu bytes, but the file ends %zu bytes on, at byte %zu: likely "
                     "an incomplete "
                     "download (fetch the file again), or a damaged length",
                     field, (unsigned long long)n, left, c->g->n_bytes);
}

sennit_status gguf_read_u32(struct gguf_cursor *c, const char *field, uint32_t *out)
{
    SN_TRY(gguf_need(c, 4, field));
    *out = (uint32_t)gguf_load(c->g->file + c->at, 4);
    c->at += 4;
    return SENNIT_OK;
}

sennit_status gguf_read_u64(struct gguf_cursor *c, const char *field, uint64_t *out)
{
    SN_TRY(gguf_need(c, 8, field));
    *out = gguf_load(c->g->file + c->at, 8);
    c->at += 8;
    return SENNIT_OK;
}

sennit_status gguf_read_name(struct gguf_cursor *c, const char *field, size_t max,
                             struct sn_gguf_str *out)
{
    uint64_t len;
    SN_TRY(gguf_read_u64(c, "length of its name", &len));
    if (len == 0 || len > max)
        return gguf_fail(c, SENNIT_FORMAT, c->at - 8,
                         "the %s has %llu bytes, allowed are 1 to %zu: the file is damaged", field,
                         (unsigned long long)len, max);
    SN_TRY(gguf_need(c, len, field));
    *out = (struct sn_gguf_str){(const char *)c->g->file + c->at, (size_t)len};
    c->at += (size_t)len;
    return SENNIT_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

size_t gguf_type_bytes(uint32_t type)
{
    static const uint8_t sizes[SN_GGUF_TYPE_COUNT] = {
        [SN_GGUF_U8] = 1,  [SN_GGUF_I8] = 1,  [SN_GGUF_U16] = 2, [SN_GGUF_I16] = 2,
        [SN_GGUF_U32] = 4, [SN_GGUF_I32] = 4, [SN_GGUF_F32] = 4, [SN_GGUF_BOOL] = 1,
        [SN_GGUF_U64] = 8, [SN_GGUF_I64] = 8, [SN_GGUF_F64] = 8};
    return type < SN_GGUF_TYPE_COUNT ? sizes[type] : 0;
}

static sennit_status scan_string(struct gguf_cursor *c, const char *field)
{
    uint64_t len;
    SN_TRY(gguf_read_u64(c, field, &len));
    SN_TRY(gguf_need(c, len, field));
    c->at += (size_t)len;
    return SENNIT_OK;
}

/* Any byte but 0 and 1 is no truth value; reading one as a C bool would be undefined. */
static sennit_status scan_bools(struct gguf_cursor *c, size_t n)
{
    const uint8_t *p = c->g->file + c->at;
    for (size_t i = 0; i < n; i++)
        if (p[i] > 1)
            return gguf_fail(c, SENNIT_FORMAT, c->at + i,
                             "a bool is 0 or 1, not %u: the file is damaged", p[i]);
    return SENNIT_OK;
}

/* Every string takes 8 bytes at least, so a count that lies ends with the file. */
static sennit_status scan_strings(struct gguf_cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        SN_TRY(scan_string(c, "string in the array"));
    c->g->n_strings += (size_t)n;
    return SENNIT_OK;
}

static sennit_status scan_fixed(struct gguf_cursor *c, uint32_t type, uint64_t n, const char *field)
{
    size_t size = gguf_type_bytes(type);
    SN_TRY(gguf_need(c, n > UINT64_MAX / size ? UINT64_MAX : n * size, field));
    if (type == SN_GGUF_BOOL)
        SN_TRY(scan_bools(c, (size_t)n));
    c->at += (size_t)n * size;
    return SENNIT_OK;
}

static sennit_status scan_array(struct gguf_cursor *c)
{
    uint32_t elem;
    uint64_t n;
    SN_TRY(gguf_read_u32(c, "array's element type", &elem));
    size_t at = c->at - 4;
    SN_TRY(gguf_read_u64(c, "array's length", &n));
    if (elem == SN_GGUF_STRING)
        return scan_strings(c, n);
    if (elem == SN_GGUF_ARRAY)
        return gguf_fail(c, SENNIT_UNSUPPORTED, at, "arrays of arrays are not supported");
    if (gguf_type_bytes(elem) == 0)
        return gguf_fail(c, SENNIT_FORMAT, at,
                         "array element type %u does not exist (0 to 12 do): the file is damaged",
                         elem);
    return scan_fixed(c, elem, n, "array");
}

static sennit_status scan_value(struct gguf_cursor *c, uint32_t type)
{
    if (type == SN_GGUF_STRING)
        return scan_string(c, "string");
    if (type == SN_GGUF_ARRAY)
        return scan_array(c);
    if (gguf_type_bytes(type) == 0)
        return gguf_fail(c, SENNIT_FORMAT, c->at - 4,
                         "value type %u does not exist (0 to 12 do): the file is damaged", type);
    return scan_fixed(c, type, 1, "value");
}

/* ---- entries --------------------------------------------------------------------------------- */

static sennit_status parse_entry(struct gguf_cursor *c, size_t index)
{
    struct sn_gguf *g = c->g;
    struct gguf_entry *e = &g->entries[index];
    struct sn_gguf_str key;
    size_t slot;
    c->index = index;
    c->name.data = NULL;
    SN_TRY(gguf_read_name(c, "key", SN_GGUF_MAX_KEY_BYTES, &key));
    c->name = key;
    e->key_at = c->at - key.len;
    e->key_len = (uint32_t)key.len;
    if (gguf_names_find(&g->entry_names, g, gguf_entry_name, key, &slot) != SN_GGUF_NONE)
        return gguf_fail(c, SENNIT_FORMAT, (size_t)e->key_at,
                         "this key occurs twice, so its value is not certain");
    g->entry_names.slots[slot] = (uint32_t)index + 1;
    SN_TRY(gguf_read_u32(c, "value type", &e->type));
    e->first_string = g->n_strings;
    return scan_value(c, e->type);
}

/* Second pass, over string arrays alone: the first has counted them, so the table is allocated once
 * and exactly. */
static sennit_status index_strings(struct gguf_cursor *c)
{
    struct sn_gguf *g = c->g;
    size_t n_strings = g->n_strings;
    g->n_strings = 0;
    if (n_strings == 0)
        return SENNIT_OK;
    g->strings = sn_alloc(g->heap, SN_USE_MISC, n_strings * sizeof *g->strings);
    if (!g->strings)
        return sn_fail(c->err, SENNIT_NOMEM,
                       "out of memory: a table of %zu strings needs %zu bytes", n_strings,
                       n_strings * sizeof *g->strings);
    g->n_strings = n_strings;
    size_t next = 0;
    for (size_t i = 0; i < g->n_entries; i++) {
        struct sn_gguf_kv kv;
        sn_gguf_kv_at(g, i, &kv);
        if (kv.type != SN_GGUF_ARRAY || kv.array.elem != SN_GGUF_STRING)
            continue;
        size_t at = (size_t)(kv.array.data - g->file);
        for (size_t k = 0; k < kv.array.n; k++) {
            g->strings[next++] = at;
            at += 8 + (size_t)gguf_load(g->file + at, 8);
        }
    }
    return SENNIT_OK;
}

/* Tensor offsets are rounded with a mask, hence a power of two; the specification asks for a
 * multiple of 8, and data aligned to 8 can be read in place as any element type. */
static sennit_status read_alignment(struct gguf_cursor *c)
{
    struct sn_gguf *g = c->g;
    SN_TRY(sn_gguf_u32_or(g, "general.alignment", 32, &g->alignment, c->err));
    if (g->alignment < 8 || (g->alignment & (g->alignment - 1)) != 0)
        return sn_fail(
            c->err, SENNIT_FORMAT,
            "metadata key 'general.alignment' is %u, but must be a power of two and at least 8",
            g->alignment);
    return SENNIT_OK;
}

sennit_status gguf_parse_metadata(struct gguf_cursor *c, uint64_t n_entries)
{
    struct sn_gguf *g = c->g;
    size_t n = (size_t)n_entries;
    c->kind = "metadata key";
    if (n == 0)
        return SENNIT_OK;
    SN_TRY(gguf_names_init(&g->entry_names, g->heap, n, c->err));
    g->entries = sn_alloc(g->heap, SN_USE_MISC, n * sizeof *g->entries);
    if (!g->entries)
        return sn_fail(c->err, SENNIT_NOMEM, "out of memory: %zu metadata keys need %zu bytes", n,
                       n * sizeof *g->entries);
    g->n_entries = n;
    for (size_t i = 0; i < n; i++)
        SN_TRY(parse_entry(c, i));
    SN_TRY(index_strings(c));
    return read_alignment(c);
}
