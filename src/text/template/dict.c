/* Lists and dictionaries of the template language, and their making from JSON. */
#include "text/template/run.h"

#include <math.h>

/* ---- sequences ------------------------------------------------------------------------------- */

struct sn_jseq *sn_jseq_new(struct sn_jrun *r, size_t cap)
{
    struct sn_jseq *s = sn_jnew(r, 1, sizeof *s);
    if (!s || (cap && !(s->v = sn_jnew(r, cap, sizeof *s->v))))
        return NULL;
    s->cap = cap;
    return s;
}

bool sn_jseq_push(struct sn_jrun *r, struct sn_jseq *s, struct sn_jval v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct sn_jval *more = sn_jnew(r, cap, sizeof *more);
        if (!more)
            return false;
        if (s->n)
            memcpy(more, s->v, s->n * sizeof *more);
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = v;
    return true;
}

/* ---- dictionaries
 * -------------------------------------------------------------------------------------------- */

enum { SMALL_DICT = 8 };

/* Tuples are keys when all they hold are; the depth and the steps keep a tuple of tuples of ...
 * affordable. */
static bool hashable(struct sn_jrun *r, struct sn_jval v, int depth, bool *yes)
{
    *yes = depth < 64 && v.type != SN_J_LIST && v.type != SN_J_DICT && v.type != SN_J_VIEW;
    if (v.type != SN_J_TUPLE)
        return true;
    for (size_t i = 0; *yes && i < v.u.seq->n; i++)
        if (!sn_jsteps(r, 1) || !hashable(r, v.u.seq->v[i], depth + 1, yes))
            return false;
    return true;
}

bool sn_jhashable(struct sn_jrun *r, struct sn_jval v, bool *yes)
{
    return hashable(r, v, 0, yes);
}

static bool need_hashable(struct sn_jrun *r, struct sn_jval key)
{
    bool yes;
    if (!hashable(r, key, 0, &yes))
        return false;
    return yes || sn_jfail(r, SENNIT_INVALID, "a %s cannot be the key of a dictionary",
                           sn_jtype_name(key));
}

static uint64_t mix(uint64_t h)
{
    return (h ^ h >> 32) * 0x9E3779B97F4A7C15u;
}

/* Equal values have equal hashes; numbers hash by their value as a float. */
static uint64_t hash_value(struct sn_jval v)
{
    uint64_t h = 1469598103934665603u;
    if (v.type == SN_J_STR) {
        for (size_t i = 0; i < v.u.s->len; i++)
            h = (h ^ (unsigned char)v.u.s->data[i]) * 1099511628211u;
        return mix(h);
    }
    if (sn_jis_num(v)) {
        double f = sn_jfloat_of(v) + 0.0; /* -0.0 becomes 0.0 */
        memcpy(&h, &f, sizeof h);
        return mix(h);
    }
    if (v.type == SN_J_TUPLE)
        for (size_t i = 0; i < v.u.seq->n; i++)
            h = mix(h + hash_value(v.u.seq->v[i]));
    return v.type == SN_J_TUPLE ? h : mix((uint64_t)v.type);
}

static bool index_dict(struct sn_jrun *r, struct sn_jdict *d)
{
    size_t n = 4 * d->cap;
    uint32_t *index = sn_jnew(r, n, sizeof *index);
    if (!index)
        return false;
    for (size_t i = 0; i < d->n; i++) {
        size_t slot = hash_value(d->keys[i]) % n;
        while (index[slot])
            slot = (slot + 1) % n;
        index[slot] = (uint32_t)i + 1;
    }
    d->index = index;
    d->n_index = n;
    return true;
}

struct sn_jdict *sn_jdict_new(struct sn_jrun *r, size_t cap)
{
    struct sn_jdict *d = sn_jnew(r, 1, sizeof *d);
    if (!d || (cap && (!(d->keys = sn_jnew(r, cap, sizeof *d->keys)) ||
                       !(d->vals = sn_jnew(r, cap, sizeof *d->vals)))))
        return NULL;
    d->cap = cap;
    return cap > SMALL_DICT && !index_dict(r, d) ? NULL : d;
}

static bool find_entry(struct sn_jrun *r, const struct sn_jdict *d, struct sn_jval key, size_t *at)
{
    bool same;
    *at = d->n;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (!sn_jequal(r, d->keys[i], key, &same))
                return false;
            if (same) {
                *at = i;
                return true;
            }
        }
        return true;
    }
    for (size_t slot = hash_value(key) % d->n_index; d->index[slot];
         slot = (slot + 1) % d->n_index) {
        size_t i = d->index[slot] - 1;
        if (!sn_jequal(r, d->keys[i], key, &same))
            return false;
        if (same) {
            *at = i;
            return true;
        }
    }
    return true;
}

static bool grow_dict(struct sn_jrun *r, struct sn_jdict *d)
{
    size_t cap = d->cap ? d->cap * 2 : 4;
    struct sn_jval *keys = sn_jnew(r, cap, sizeof *keys),
                   *vals = keys ? sn_jnew(r, cap, sizeof *vals) : NULL;
    if (!vals)
        return false;
    if (d->n) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(vals, d->vals, d->n * sizeof *vals);
    }
    d->keys = keys;
    d->vals = vals;
    d->cap = cap;
    return cap <= SMALL_DICT || index_dict(r, d);
}

bool sn_jdict_set(struct sn_jrun *r, struct sn_jdict *d, struct sn_jval key, struct sn_jval v)
{
    size_t at;
    if (!need_hashable(r, key) || !find_entry(r, d, key, &at))
        return false;
    if (at < d->n) {
        d->vals[at] = v;
        return true;
    }
    if (d->n == d->cap && !grow_dict(r, d))
        return false;
    d->keys[d->n] = key;
    d->vals[d->n++] = v;
    if (d->index) {
        size_t slot = hash_value(key) % d->n_index;
        while (d->index[slot])
            slot = (slot + 1) % d->n_index;
        d->index[slot] = (uint32_t)d->n;
    }
    return true;
}

bool sn_jdict_get(struct sn_jrun *r, const struct sn_jdict *d, struct sn_jval key,
                  struct sn_jval **out)
{
    size_t at;
    *out = NULL;
    if (!need_hashable(r, key) || !find_entry(r, d, key, &at))
        return false;
    if (at < d->n)
        *out = &d->vals[at];
    return true;
}

struct sn_jval *sn_jdict_find(const struct sn_jdict *d, const struct sn_jstr *key)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (d->keys[i].type == SN_J_STR && sn_jstr_same(d->keys[i].u.s, key))
                return &d->vals[i];
        return NULL;
    }
    for (size_t slot = hash_value(sn_jstrv(key)) % d->n_index; d->index[slot];
         slot = (slot + 1) % d->n_index) {
        size_t i = d->index[slot] - 1;
        if (d->keys[i].type == SN_J_STR && sn_jstr_same(d->keys[i].u.s, key))
            return &d->vals[i];
    }
    return NULL;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* Bytes that are no UTF-8 become U+FFFD, so that everything behind here can rely on valid text. */
static bool repair(struct sn_jrun *r, const char *data, size_t n, bool trusted, struct sn_jval *out)
{
    struct sn_jsb b;
    sn_jsb_init(&b, r);
    while (n > 0) {
        size_t bad = n;
        if (sn_uni_valid(data, n, &bad))
            bad = n;
        sn_jsb_bytes(&b, data, bad, trusted);
        if (bad < n)
            sn_jsb_char(&b, 0xFFFD, trusted);
        bad = sn_min_size(bad + 1, n);
        data += bad;
        n -= bad;
    }
    return sn_jsb_val(&b, out);
}

/* The bytes stay where they are: the variables outlive the render. */
static bool from_text(struct sn_jrun *r, const char *data, size_t n, bool trusted,
                      struct sn_jval *out)
{
    size_t bad;
    if (!sn_uni_valid(data, n, &bad))
        return repair(r, data, n, trusted, out);
    struct sn_jstr *s = sn_jnew(r, 1, sizeof *s);
    if (!s)
        return false;
    *s = (struct sn_jstr){
        .data = data, .len = n, .n_chars = sn_uni_count(data, n), .trusted = trusted};
    *out = sn_jstrv(s);
    return true;
}

static bool is_known_role(const struct sn_jrun *r, const char *key, const json_t *v)
{
    static const char *const standard[] = {"system",   "user",      "assistant", "tool",
                                           "function", "developer", NULL};
    const char *const *roles = r->opts->trusted_roles ? r->opts->trusted_roles : standard;
    if (strcmp(key, "role") != 0 || !json_is_string(v))
        return false;
    for (; *roles; roles++)
        if (strlen(*roles) == json_string_length(v) && strcmp(*roles, json_string_value(v)) == 0)
            return true;
    return false;
}

static bool from_object(struct sn_jrun *r, const json_t *j, bool trusted, struct sn_jval *out)
{
    struct sn_jdict *d = sn_jdict_new(r, json_object_size(j));
    if (!d)
        return false;
    json_t *o = (json_t *)j; /* the iterator's type asks for it; nothing is changed */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *value = json_object_iter_value(it);
        struct sn_jval k, v;
        if (!from_text(r, key, strlen(key), trusted, &k) ||
            !sn_jfrom_json(r, value, trusted || is_known_role(r, key, value), &v) ||
            !sn_jdict_set(r, d, k, v))
            return false;
    }
    *out = sn_jdictv(d);
    return true;
}

static bool from_array(struct sn_jrun *r, const json_t *j, bool trusted, struct sn_jval *out)
{
    struct sn_jseq *s = sn_jseq_new(r, json_array_size(j));
    if (!s)
        return false;
    for (size_t i = 0; i < json_array_size(j); i++) {
        struct sn_jval v;
        if (!sn_jfrom_json(r, json_array_get(j, i), trusted, &v) || !sn_jseq_push(r, s, v))
            return false;
    }
    *out = sn_jseqv(SN_J_LIST, s);
    return true;
}

bool sn_jfrom_json(struct sn_jrun *r, const json_t *j, bool trusted, struct sn_jval *out)
{
    if (!sn_jenter(r))
        return false;
    bool ok = true;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        ok = from_object(r, j, trusted, out);
        break;
    case JSON_ARRAY:
        ok = from_array(r, j, trusted, out);
        break;
    case JSON_STRING:
        ok = from_text(r, json_string_value(j), json_string_length(j), trusted, out);
        break;
    case JSON_INTEGER:
        *out = sn_jint(json_integer_value(j));
        break;
    case JSON_REAL:
        *out = sn_jfloat(json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = sn_jbool(json_is_true(j));
        break;
    case JSON_NULL:
        *out = sn_jnone();
        break;
    }
    sn_jleave(r);
    return ok;
}
