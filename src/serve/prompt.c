/* The completion endpoint's prompt: a text, token ids, or a list of either. */
#include <stdio.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/fields.h"

static const char SHAPES[] = "a string, an array of strings, an array of token ids or an array of such arrays";

static bool read_text(struct sv_reader *r, struct sv_prompt *out, const json_t *v)
{
    out->n_text = json_string_length(v);
    out->text = sv_copy(json_string_value(v), out->n_text);
    return out->text ? true : sv_no_memory(r->err);
}

static bool bad_id(struct sv_reader *r, const char *param, size_t i, const json_t *id)
{
    char at[64];
    snprintf(at, sizeof at, "%s[%zu]", param, i);
    if (!json_is_integer(id))
        return sv_wrong_type(r->err, at, id, "a token id (a whole number)");
    return sv_wrong_value(r->err, at, id, "a token id of the model's vocabulary");
}

static bool read_ids(struct sv_reader *r, struct sv_prompt *out, const json_t *v, const char *param)
{
    size_t n = json_array_size(v), i;
    const json_t *id;
    if (n == 0)
        return sv_wrong_value(r->err, param, v, "a list of token ids with at least one id");
    if (n > SIZE_MAX / sizeof *out->ids || !(out->ids = sv_alloc(n * sizeof *out->ids)))
        return sv_no_memory(r->err);
    out->n_ids = n;
    json_array_foreach((json_t *)v, i, id)
    {
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x > INT32_MAX)
            return bad_id(r, param, i, id);
        out->ids[i] = (int32_t)x;
    }
    return true;
}

static bool read_list(struct sv_reader *r, const json_t *list)
{
    struct sv_call *c = r->call;
    size_t n = json_array_size(list), i;
    const json_t *v;
    bool texts = json_is_string(json_array_get(list, 0));
    if (n > SV_MOST_CHOICES)
        return sv_fail(r->err, 400, "invalid_value", "prompt",
                       "'prompt' has %zu prompts; one request may have at most %d", n, SV_MOST_CHOICES);
    if (!(c->prompts = sv_calloc(n, sizeof *c->prompts)))
        return sv_no_memory(r->err);
    c->n_prompts = (uint32_t)n;
    json_array_foreach((json_t *)list, i, v)
    {
        char at[32];
        snprintf(at, sizeof at, "prompt[%zu]", i);
        if (texts ? !json_is_string(v) : !json_is_array(v))
            return sv_wrong_type(r->err, at, v, texts ? "a string, as the first is" : "an array of token ids");
        if (texts ? !read_text(r, &c->prompts[i], v) : !read_ids(r, &c->prompts[i], v, at))
            return false;
    }
    return true;
}

bool sv_read_prompt(struct sv_reader *r, const struct sv_field *f, const json_t *v)
{
    struct sv_call *c = r->call;
    const json_t *first = json_array_get(v, 0);
    if (json_is_array(v) && !first)
        return sv_wrong_value(r->err, f->name, v, "at least one prompt: \"\" is one, an empty array is none");
    if (!json_is_string(v) && !json_is_array(v))
        return sv_wrong_type(r->err, f->name, v, SHAPES);
    if (first && !json_is_integer(first)) {
        if (!json_is_string(first) && !json_is_array(first))
            return sv_wrong_type(r->err, "prompt[0]", first, "a string, a token id or an array of token ids");
        return read_list(r, v);
    }
    if (!(c->prompts = sv_calloc(1, sizeof *c->prompts)))
        return sv_no_memory(r->err);
    c->n_prompts = 1;
    return first ? read_ids(r, c->prompts, v, f->name) : read_text(r, c->prompts, v);
}
