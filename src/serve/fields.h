/* The fields of a request: one table for both endpoints, and what its readers share. Private to the parser. */
#ifndef SERVE_FIELDS_H
#define SERVE_FIELDS_H

#include "serve/call.h"

/* One request while it is read. */
struct sv_reader {
    enum sv_endpoint endpoint;
    bool developer_role;
    const json_t *body;    /* the whole object */
    struct sv_call *call;  /* being filled */
    struct sv_error *err;
    json_t *vars;          /* chat: owned; what becomes call->vars_json */
    bool include_usage;    /* from stream_options */
    uint32_t n_top_asked;  /* top_logprobs */
};

enum sv_where { SV_IN_CHAT = 1, SV_IN_COMPLETION = 2, SV_IN_BOTH = 3 };

struct sv_field {
    const char *name;
    uint32_t where; /* sv_where */
    /* Never sees null, which means absent. */
    bool (*read)(struct sv_reader *r, const struct sv_field *f, const json_t *v);
    size_t offset;   /* of the value in struct sv_call, for the plain kinds */
    double lo, hi;   /* their bounds */
    const char *why; /* what an ignored field is, or why a value is refused */
};

/* Reads every member of r->body; a member that no row names is refused. */
bool sv_fields_read(struct sv_reader *r);

/* ---- what readers share ---------------------------------------------------------------------------------------- */

/* "'param' must be <wanted>, not <what v is>": the code is invalid_type or invalid_value by the kind. */
bool sv_wrong_type(struct sv_error *err, const char *param, const json_t *v, const char *wanted);
bool sv_wrong_value(struct sv_error *err, const char *param, const json_t *v, const char *wanted);
bool sv_no_memory(struct sv_error *err);
/* False with the error of an unknown member, and the nearest of known[n] proposed. */
bool sv_unknown(struct sv_error *err, const char *param, const char *name, const char *what, const char *const *known,
                size_t n);
/* Most levels of arrays and objects in a body, and in the arguments of a tool call. */
enum { SV_MOST_DEPTH = 100, SV_MOST_ARGUMENT_DEPTH = 64 };

/* ---- readers with a file of their own -------------------------------------------------------------------------- */

bool sv_read_messages(struct sv_reader *r, const struct sv_field *f, const json_t *v); /* messages.c */
bool sv_read_prompt(struct sv_reader *r, const struct sv_field *f, const json_t *v);   /* prompt.c */

#endif
