/* Looking things up in an open GGUF file. */
#include "format/gguf_internal.h"

#include <float.h>
#include <stdio.h>

const char *sn_gguf_type_name(uint32_t type)
{
    static const char *const names[SN_GGUF_TYPE_COUNT] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                          "i32", "f32", "bool", "string", "array",
                                                          "u64", "i64", "f64"};
    return type < SN_GGUF_TYPE_COUNT ? names[type] : "unknown";
}

size_t sn_gguf_n_kv(const struct sn_gguf *g)
{
    return g->n_entries;
}

void sn_gguf_kv_at(const struct sn_gguf *g, size_t index, struct sn_gguf_kv *out)
{
    const struct gguf_entry *e = &g->entries[index];
    *out =
        (struct sn_gguf_kv){.key = gguf_entry_name(g, index), .type = (enum sn_gguf_type)e->type};
    out->data = g->file + e->key_at + e->key_len + 4;
    if (e->type != SN_GGUF_ARRAY)
        return;
    out->array.elem = (enum sn_gguf_type)gguf_load(out->data, 4);
    out->array.n = (size_t)gguf_load(out->data + 4, 8);
    out->array.data = out->data + 12;
    out->array.file = g->file;
    if (out->array.elem == SN_GGUF_STRING && g->strings)
        out->array.strings = g->strings + e->first_string;
}

size_t sn_gguf_find(const struct sn_gguf *g, const char *key)
{
    return gguf_names_find(&g->entry_names, g, gguf_entry_name,
                           (struct sn_gguf_str){key, strlen(key)}, NULL);
}

bool sn_gguf_has(const struct sn_gguf *g, const char *key)
{
    return sn_gguf_find(g, key) != SN_GGUF_NONE;
}

/* ---- integers -------------------------------------------------------------------------------- */

bool gguf_is_int(uint32_t type)
{
    return type <= SN_GGUF_I32 || type == SN_GGUF_U64 || type == SN_GGUF_I64;
}

static int64_t load_signed(uint32_t type, const uint8_t *p)
{
    switch (type) {
    case SN_GGUF_I8:
        return (int8_t)gguf_load(p, 1);
    case SN_GGUF_I16:
        return (int16_t)gguf_load(p, 2);
    case SN_GGUF_I32:
        return (int32_t)gguf_load(p, 4);
    default:
        return (int64_t)gguf_load(p, 8);
    }
}

uint64_t gguf_load_int(uint32_t type, const uint8_t *p, bool *negative)
{
    *negative = false;
    if (type == SN_GGUF_I8 || type == SN_GGUF_I16 || type == SN_GGUF_I32 || type == SN_GGUF_I64) {
        int64_t v = load_signed(type, p);
        *negative = v < 0;
        return (uint64_t)v;
    }
    return gguf_load(p, gguf_type_bytes(type));
}

int64_t sn_gguf_array_int(const struct sn_gguf_array *a, size_t i)
{
    bool negative;
    uint64_t v = gguf_load_int(a->elem, a->data + i * gguf_type_bytes(a->elem), &negative);
    return !negative && v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* ---- getters --------------------------------------------------------------------------------- */

static void type_text(const struct sn_gguf_kv *kv, char out[32])
{
    if (kv->type == SN_GGUF_ARRAY)
        snprintf(out, 32, "array of %s", sn_gguf_type_name(kv->array.elem));
    else
        snprintf(out, 32, "%s", sn_gguf_type_name(kv->type));
}

static size_t value_offset(const struct sn_gguf *g, const struct sn_gguf_kv *kv)
{
    return (size_t)(kv->data - g->file);
}

static sennit_status wrong_type(const struct sn_gguf *g, const char *key,
                                const struct sn_gguf_kv *kv, const char *expected,
                                struct sennit_error *err)
{
    char found[32];
    type_text(kv, found);
    return sn_fail(err, SENNIT_FORMAT,
                   "metadata key '%s' (byte %zu) must be %s, but the file has %s", key,
                   value_offset(g, kv), expected, found);
}

static sennit_status find_required(const struct sn_gguf *g, const char *key, const char *expected,
                                   struct sn_gguf_kv *kv, struct sennit_error *err)
{
    size_t index = sn_gguf_find(g, key);
    if (index == SN_GGUF_NONE)
        return sn_fail(err, SENNIT_FORMAT,
                       "metadata key '%s' is missing (expected: %s): convert the model again with "
                       "a current converter",
                       key, expected);
    sn_gguf_kv_at(g, index, kv);
    return SENNIT_OK;
}

static sennit_status integer_in_range(const struct sn_gguf *g, const char *key, uint32_t type,
                                      const uint8_t *p, uint64_t max, uint64_t *out,
                                      struct sennit_error *err)
{
    bool negative;
    uint64_t v = gguf_load_int(type, p, &negative);
    if (negative)
        return sn_fail(err, SENNIT_FORMAT,
                       "metadata key '%s' (byte %zu) is %lld, but must not be negative", key,
                       (size_t)(p - g->file), (long long)v);
    if (v > max)
        return sn_fail(err, SENNIT_FORMAT,
                       "metadata key '%s' (byte %zu) is %llu, but at most %llu is possible", key,
                       (size_t)(p - g->file), (unsigned long long)v, (unsigned long long)max);
    *out = v;
    return SENNIT_OK;
}

static sennit_status get_integer(const struct sn_gguf *g, const char *key, uint64_t max,
                                 uint64_t *out, struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    SN_TRY(find_required(g, key, "an integer", &kv, err));
    if (!gguf_is_int(kv.type))
        return wrong_type(g, key, &kv, "an integer", err);
    return integer_in_range(g, key, kv.type, kv.data, max, out, err);
}

sennit_status sn_gguf_u32(const struct sn_gguf *g, const char *key, uint32_t *out,
                          struct sennit_error *err)
{
    uint64_t v = 0;
    SN_TRY(get_integer(g, key, UINT32_MAX, &v, err));
    *out = (uint32_t)v;
    return SENNIT_OK;
}

sennit_status sn_gguf_u64(const struct sn_gguf *g, const char *key, uint64_t *out,
                          struct sennit_error *err)
{
    return get_integer(g, key, UINT64_MAX, out, err);
}

sennit_status sn_gguf_f32(const struct sn_gguf *g, const char *key, float *out,
                          struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    double v;
    SN_TRY(find_required(g, key, "f32", &kv, err));
    if (kv.type == SN_GGUF_F32) {
        float f;
        memcpy(&f, kv.data, sizeof f);
        v = f;
    } else if (kv.type == SN_GGUF_F64) {
        memcpy(&v, kv.data, sizeof v);
    } else {
        return wrong_type(g, key, &kv, "f32", err);
    }
    if (!(v >= -FLT_MAX && v <= FLT_MAX)) /* NaN fails both */
        return sn_fail(err, SENNIT_FORMAT,
                       "metadata key '%s' (byte %zu) is %g, but must be a finite f32", key,
                       value_offset(g, &kv), v);
    *out = (float)v;
    return SENNIT_OK;
}

sennit_status sn_gguf_bool(const struct sn_gguf *g, const char *key, bool *out,
                           struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    SN_TRY(find_required(g, key, "a bool", &kv, err));
    if (kv.type != SN_GGUF_BOOL)
        return wrong_type(g, key, &kv, "a bool", err);
    *out = kv.data[0] != 0;
    return SENNIT_OK;
}

sennit_status sn_gguf_str(const struct sn_gguf *g, const char *key, struct sn_gguf_str *out,
                          struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    SN_TRY(find_required(g, key, "a string", &kv, err));
    if (kv.type != SN_GGUF_STRING)
        return wrong_type(g, key, &kv, "a string", err);
    *out = (struct sn_gguf_str){(const char *)kv.data + 8, (size_t)gguf_load(kv.data, 8)};
    return SENNIT_OK;
}

sennit_status sn_gguf_u32_or(const struct sn_gguf *g, const char *key, uint32_t fallback,
                             uint32_t *out, struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_u32(g, key, out, err);
    *out = fallback;
    return SENNIT_OK;
}

sennit_status sn_gguf_u64_or(const struct sn_gguf *g, const char *key, uint64_t fallback,
                             uint64_t *out, struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_u64(g, key, out, err);
    *out = fallback;
    return SENNIT_OK;
}

sennit_status sn_gguf_f32_or(const struct sn_gguf *g, const char *key, float fallback, float *out,
                             struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_f32(g, key, out, err);
    *out = fallback;
    return SENNIT_OK;
}

sennit_status sn_gguf_bool_or(const struct sn_gguf *g, const char *key, bool fallback, bool *out,
                              struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_bool(g, key, out, err);
    *out = fallback;
    return SENNIT_OK;
}

sennit_status sn_gguf_str_or(const struct sn_gguf *g, const char *key, const char *fallback,
                             struct sn_gguf_str *out, struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_str(g, key, out, err);
    *out = (struct sn_gguf_str){fallback, fallback ? strlen(fallback) : 0};
    return SENNIT_OK;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

sennit_status sn_gguf_array(const struct sn_gguf *g, const char *key, enum sn_gguf_type elem,
                            struct sn_gguf_array *out, struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    char expected[40];
    snprintf(expected, sizeof expected, "an array of %s", sn_gguf_type_name(elem));
    SN_TRY(find_required(g, key, expected, &kv, err));
    if (kv.type != SN_GGUF_ARRAY || kv.array.elem != elem)
        return wrong_type(g, key, &kv, expected, err);
    *out = kv.array;
    return SENNIT_OK;
}

sennit_status sn_gguf_array_or_empty(const struct sn_gguf *g, const char *key,
                                     enum sn_gguf_type elem, struct sn_gguf_array *out,
                                     struct sennit_error *err)
{
    if (sn_gguf_has(g, key))
        return sn_gguf_array(g, key, elem, out, err);
    *out = (struct sn_gguf_array){.elem = elem};
    return SENNIT_OK;
}

sennit_status sn_gguf_int_array(const struct sn_gguf *g, const char *key, struct sn_gguf_array *out,
                                struct sennit_error *err)
{
    struct sn_gguf_kv kv = {0};
    SN_TRY(find_required(g, key, "an array of integers", &kv, err));
    if (kv.type != SN_GGUF_ARRAY || !gguf_is_int(kv.array.elem))
        return wrong_type(g, key, &kv, "an array of integers", err);
    *out = kv.array;
    return SENNIT_OK;
}

sennit_status sn_gguf_u32_each(const struct sn_gguf *g, const char *key, size_t n, uint32_t *out,
                               struct sennit_error *err)
{
    static const char expected[] = "an integer, or an array with one integer per layer";
    struct sn_gguf_kv kv = {0};
    uint64_t v = 0;
    SN_TRY(find_required(g, key, expected, &kv, err));
    bool is_array = kv.type == SN_GGUF_ARRAY;
    if (!gguf_is_int(is_array ? kv.array.elem : kv.type))
        return wrong_type(g, key, &kv, expected, err);
    if (is_array && kv.array.n != n)
        return sn_fail(err, SENNIT_FORMAT,
                       "metadata key '%s' (byte %zu) has %zu values, but there are %zu layers", key,
                       value_offset(g, &kv), kv.array.n, n);
    for (int checked = 0; checked < 2; checked++) { /* all are checked before the first is stored */
        for (size_t i = 0; i < n; i++) {
            uint32_t type = is_array ? kv.array.elem : kv.type;
            const uint8_t *p = is_array ? kv.array.data + i * gguf_type_bytes(type) : kv.data;
            SN_TRY(integer_in_range(g, key, type, p, UINT32_MAX, &v, err));
            if (checked)
                out[i] = (uint32_t)v;
        }
    }
    return SENNIT_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

size_t sn_gguf_n_tensors(const struct sn_gguf *g)
{
    return g->n_tensors;
}

const struct sn_gguf_tensor *sn_gguf_tensor_at(const struct sn_gguf *g, size_t index)
{
    return index < g->n_tensors ? &g->tensors[index] : NULL;
}

const struct sn_gguf_tensor *sn_gguf_tensor(const struct sn_gguf *g, const char *name)
{
    struct sn_gguf_str wanted = {name, strlen(name)};
    size_t index = gguf_names_find(&g->tensor_names, g, gguf_tensor_name, wanted, NULL);
    return index == SN_GGUF_NONE ? NULL : &g->tensors[index];
}
