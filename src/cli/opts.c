#include "opts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* ---- suggestions ----------------------------------------------------------------------------- */

enum { NEAREST_MAX = 40 };

/* Edit distance with transpositions, by the usual table; words longer than NEAREST_MAX never match.
 */
static size_t distance(const char *a, const char *b)
{
    size_t d[NEAREST_MAX + 1][NEAREST_MAX + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > NEAREST_MAX || m > NEAREST_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *opts_nearest(const char *typed, const char *const *words, size_t n)
{
    const char *best = NULL;
    size_t len = strlen(typed), best_d = len / 3 + 2; /* a third of the letters may be wrong */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(typed, words[i]);
        if (len >= 3 && strncmp(words[i], typed, len) == 0)
            d = 1; /* cut short */
        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    return best;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool bad_value(const struct command *cmd, const struct opt *o, const char *value,
                      const char *wanted)
{
    cli_error("--%s wants %s, not '%s'", o->name, wanted, value);
    cli_hint("'sennit %s --help' lists the options", cmd->name);
    return false;
}

static bool parse_whole(const char *text, uint64_t *out, char **end)
{
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, end, 10);
    *out = v;
    return errno == 0;
}

static bool parse_bytes(const char *text, uint64_t *out)
{
    char *end;
    uint64_t v, unit = 1;
    if (!parse_whole(text, &v, &end))
        return false;
    if (*end != '\0') {
        static const char units[] = "kKmMgGtT";
        const char *at = strchr(units, *end);
        if (!at)
            return false;
        unit = UINT64_C(1) << (10 * ((at - units) / 2 + 1));
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    return *end == '\0' && !__builtin_mul_overflow(v, unit, out);
}

static bool in_choices(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = choices; n > 0 && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, value, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    return false;
}

static bool set_u32(const struct command *cmd, const struct opt *o, uint32_t *at, const char *value)
{
    char *end, wanted[80];
    uint64_t v;
    if (parse_whole(value, &v, &end) && *end == '\0' && (double)v >= o->lo && (double)v <= o->hi) {
        *at = (uint32_t)v;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a whole number from %.0f to %.0f", o->lo, o->hi);
    return bad_value(cmd, o, value, wanted);
}

static bool set_float(const struct command *cmd, const struct opt *o, float *at, const char *value)
{
    char *end, wanted[80];
    double v = strtod(value, &end);
    if (end != value && *end == '\0' && v >= o->lo && v <= o->hi) { /* false for NaN */
        *at = (float)v;
        return true;
    }
    snprintf(wanted, sizeof wanted, "a number from %g to %g", o->lo, o->hi);
    return bad_value(cmd, o, value, wanted);
}

static bool set_numbers(const struct command *cmd, const struct opt *o, struct opt_numbers *at,
                        const char *value)
{
    char *end, wanted[100];
    const char *p = value;
    at->n = 0;
    for (;;) {
        uint64_t v;
        if (at->n == OPT_MAX_NUMBERS || !parse_whole(p, &v, &end) || (double)v < o->lo ||
            (double)v > o->hi)
            break;
        at->items[at->n++] = (uint32_t)v;
        if (*end == '\0')
            return true;
        if (*end != ',')
            break;
        p = end + 1;
    }
    snprintf(wanted, sizeof wanted,
             "up to %d whole numbers from %.0f to %.0f with commas between them", OPT_MAX_NUMBERS,
             o->lo, o->hi);
    return bad_value(cmd, o, value, wanted);
}

static void list_add(struct opt_list *list, const char *value)
{
    list->items = cli_realloc(list->items, (list->n + 1) * sizeof *list->items);
    list->items[list->n++] = value;
}

static bool set_value(const struct command *cmd, const struct opt *o, void *base, const char *value)
{
    void *at = (char *)base + o->offset;
    char *end;
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)at = true;
        return true;
    case OPT_STRING:
        *(const char **)at = value;
        return true;
    case OPT_CHOICE:
        if (!in_choices(o->choices, value))
            return bad_value(cmd, o, value, o->choices);
        *(const char **)at = value;
        return true;
    case OPT_U32:
        return set_u32(cmd, o, at, value);
    case OPT_U64:
        if (!parse_whole(value, at, &end) || *end != '\0')
            return bad_value(cmd, o, value, "a whole number from 0 to 18446744073709551615");
        return true;
    case OPT_BYTES:
        if (!parse_bytes(value, at))
            return bad_value(cmd, o, value, "a number of bytes (such as 800000000, 512M or 4G)");
        return true;
    case OPT_FLOAT:
        return set_float(cmd, o, at, value);
    case OPT_LIST:
        list_add(at, value);
        return true;
    case OPT_NUMBERS:
        return set_numbers(cmd, o, at, value);
    }
    return false;
}

/* ---- the line -------------------------------------------------------------------------------- */

struct parser {
    const struct command *cmd;
    const struct opt_group *groups;
    size_t n_groups;
    struct opt_result *out;
};

static const struct opt *find(const struct parser *p, const char *name, size_t n, char letter,
                              void **base)
{
    for (size_t g = 0; g < p->n_groups; g++)
        for (const struct opt *o = p->groups[g].opts; o->name; o++)
            if ((letter && o->letter == letter) ||
                (name && strncmp(o->name, name, n) == 0 && o->name[n] == '\0')) {
                *base = p->groups[g].base;
                return o;
            }
    return NULL;
}

static bool unknown(const struct parser *p, const char *typed)
{
    const char *names[128];
    char word[NEAREST_MAX + 1];
    size_t n = 0, len = strcspn(typed, "=");
    for (size_t g = 0; g < p->n_groups; g++)
        for (const struct opt *o = p->groups[g].opts; o->name && n < 127; o++)
            names[n++] = o->name;
    names[n++] = "help";
    const char *bare = typed + strspn(typed, "-");
    snprintf(word, sizeof word, "%.*s", (int)(len - (size_t)(bare - typed)), bare);
    const char *near = opts_nearest(word, names, n);
    cli_error("'sennit %s' has no option '%.*s'", p->cmd->name, (int)len, typed);
    if (near)
        cli_hint("did you mean '--%s'? 'sennit %s --help' lists all", near, p->cmd->name);
    else
        cli_hint("'sennit %s --help' lists the options", p->cmd->name);
    return false;
}

static bool operand(const struct parser *p, const char *word)
{
    if (p->cmd->operand && !p->out->operand) {
        p->out->operand = word;
        return true;
    }
    cli_error("'sennit %s' does not know what to do with '%s'", p->cmd->name, word);
    cli_hint("usage: sennit %s %s (a text with spaces needs quotes)", p->cmd->name, p->cmd->usage);
    return false;
}

/* Takes the option at argv[*i], moves *i past what it used. */
static bool option(const struct parser *p, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *value = NULL;
    const struct opt *o;
    void *base;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        o = find(p, word + 2, n, 0, &base);
        if (o && word[2 + n] == '=')
            value = word + 3 + n;
    } else {
        o = find(p, NULL, 0, word[1], &base);
        if (o && word[2] != '\0') {
            if (o->kind == OPT_FLAG)
                return unknown(p, word);
            value = word + 2;
        }
    }
    if (!o)
        return unknown(p, word);
    if (o->kind == OPT_FLAG && value) {
        cli_error("--%s takes no value", o->name);
        return false;
    }
    if (o->kind != OPT_FLAG && !value) {
        if (*i + 1 == argc) {
            cli_error("--%s needs a value: --%s %s", o->name, o->name, o->arg);
            return false;
        }
        value = argv[++*i];
    }
    if (p->out->n_given < OPT_MAX_GIVEN)
        p->out->given[p->out->n_given++] = o->name;
    return set_value(p->cmd, o, base, value);
}

bool opts_parse(const struct command *cmd, const struct opt_group *groups, size_t n_groups,
                int argc, char **argv, struct opt_result *out)
{
    const struct parser p = {cmd, groups, n_groups, out};
    bool words_only = false;
    *out = (struct opt_result){0};
    for (int i = 0; i < argc; i++) {
        bool ok;
        if (!words_only && strcmp(argv[i], "--") == 0) {
            words_only = true;
            continue;
        }
        if (!words_only && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            opts_help(cmd, groups, n_groups);
            out->help = true;
            return true;
        }
        if (words_only || argv[i][0] != '-' || argv[i][1] == '\0')
            ok = operand(&p, argv[i]);
        else
            ok = option(&p, argc, argv, &i);
        if (!ok)
            return false;
    }
    return true;
}

bool opts_given(const struct opt_result *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_given; i++)
        if (strcmp(r->given[i], name) == 0)
            return true;
    return false;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* Words of text in columns `indent` .. 79; the first line is already at `indent`. */
static void wrapped(const char *text, int indent)
{
    int col = indent;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (col > indent && col + 1 + n > 79) {
            printf("\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            putchar(' ');
            col++;
        }
        printf("%.*s", n, text);
        col += n;
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void option_help(const struct opt *o)
{
    char left[64];
    int n = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter, o->name)
                      : snprintf(left, sizeof left, "      --%s", o->name);
    if (o->kind != OPT_FLAG)
        snprintf(left + n, sizeof left - (size_t)n, " %s",
                 o->kind == OPT_CHOICE ? o->choices : o->arg);
    if (strlen(left) < 30)
        printf("%-30s", left);
    else
        printf("%s\n%30s", left, "");
    wrapped(o->help, 30);
}

void opts_help(const struct command *cmd, const struct opt_group *groups, size_t n_groups)
{
    printf("sennit %s: %s\n\nusage: sennit %s %s\n", cmd->name, cmd->summary, cmd->name,
           cmd->usage);
    if (cmd->details)
        printf("\n%s", cmd->details);
    for (size_t g = 0; g < n_groups; g++) {
        printf("\n%s:\n", groups[g].title);
        for (const struct opt *o = groups[g].opts; o->name; o++)
            option_help(o);
    }
    printf("\nExamples:\n%s", cmd->examples);
    printf("\nExit codes: 0 done, 1 failed while running, 2 wrong usage, 3 a file is missing or "
           "unusable,\n4 refused (too long or too big for the limits), 130 interrupted.\n");
}
