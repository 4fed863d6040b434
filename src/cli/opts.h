/* Options of the program: tables in, filled structs and helpful messages out.
 *
 * A command describes its options in static tables. A group is one table with the struct that it
 * fills, so that commands share tables (every command that runs a model takes the same engine
 * options) without sharing state. */
#ifndef CLI_OPTS_H
#define CLI_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_STRING, /* const char * */
    OPT_CHOICE, /* const char *, one of opt.choices ("a|b|c") */
    OPT_U32,    /* uint32_t within lo .. hi */
    OPT_U64,    /* uint64_t, any */
    OPT_BYTES,  /* uint64_t with an optional suffix K, M, G (powers of 1024) */
    OPT_FLOAT,  /* float within lo .. hi */
    OPT_LIST,   /* struct opt_list; may be given again */
    OPT_NUMBERS /* struct opt_numbers: "1,2,4", each within lo .. hi */
};

struct opt_list {
    const char **items;
    uint32_t n;
};

enum { OPT_MAX_NUMBERS = 32 };
struct opt_numbers {
    uint32_t items[OPT_MAX_NUMBERS];
    uint32_t n;
};

struct opt {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* of a short form, or 0 */
    enum opt_kind kind;
    size_t offset;   /* of the value in the group's struct */
    const char *arg; /* what the help calls the value */
    const char *help;
    double lo, hi;
    const char *choices;
};

struct opt_group {
    const char *title;
    const struct opt *opts;
    void *base;
};

struct command {
    const char *name, *summary;
    const char *usage;    /* after "sennit <name> " */
    const char *details;  /* paragraphs of the help, or NULL */
    const char *examples; /* lines, each indented by two */
    const char *operand;  /* what a positional argument is; NULL = the command takes none */
    int (*run)(const struct command *self, int argc, char **argv);
};

enum { OPT_MAX_GIVEN = 64 };
struct opt_result {
    const char *operand;
    bool help;                        /* --help was given and printed: leave with success */
    const char *given[OPT_MAX_GIVEN]; /* names of the options that were given */
    uint32_t n_given;
};

/* Fills the groups' structs from argv[0 .. argc - 1]. False after a message on standard error (a
 * usage error). */
bool opts_parse(const struct command *cmd, const struct opt_group *groups, size_t n_groups,
                int argc, char **argv, struct opt_result *out);
bool opts_given(const struct opt_result *r, const char *name);
void opts_help(const struct command *cmd, const struct opt_group *groups, size_t n_groups);

/* The word of words[n] that `typed` most probably meant, or NULL when none is close. */
const char *opts_nearest(const char *typed, const char *const *words, size_t n);

#endif
