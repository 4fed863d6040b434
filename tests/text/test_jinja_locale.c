/* A host program may have set a locale with a decimal comma: templates read and print numbers as ever, on every
 * thread, and the program keeps its locale. The locale is made here, where the system's tool for it is installed. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "text/test_jinja_common.h"

static bool comma_is_set(void) { return strcmp(localeconv()->decimal_point, ",") == 0; }

/* One of the system's own. */
static bool known_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8",
                                        "fr_FR.utf8",  "nl_NL.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && comma_is_set())
            return true;
    return false;
}

static bool made_locale(void)
{
    static const char make[] = "cd \"$LOCPATH\" && printf 'comment_char %%\nescape_char /\nLC_NUMERIC\n"
                               "decimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n' >source && "
                               "localedef -c -i ./source -f ANSI_X3.4-1968 ./comma >/dev/null 2>&1; test -d comma";
    const char *tmp = getenv("TMPDIR");
    char dir[512], remove[640];
    snprintf(dir, sizeof dir, "%s/sennit-locale-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return false;
    setenv("LOCPATH", dir, 1);
    bool made = system(make) == 0 && setlocale(LC_NUMERIC, "comma") && comma_is_set();
    snprintf(remove, sizeof remove, "rm -rf '%s'", dir);
    if (system(remove) != 0)
        fprintf(stderr, "'%s' is left\n", dir);
    return made;
}

static int n_failed;

static void expect(const char *source, const char *wanted)
{
    struct rendered r;
    json_error_t e;
    json_t *vars = json_loads("{\"half\": 0.5, \"text\": \"2.25\"}", 0, &e);
    render(&r, source, strlen(source), vars, NULL);
    json_decref(vars);
    const char *got = r.status == SENNIT_OK ? r.text.data : r.err.message;
    if (strcmp(got ? got : "", wanted) != 0 || !comma_is_set()) {
        printf("FAILED: %s gave '%s', not '%s'%s\n", source, got, wanted,
               comma_is_set() ? "" : "; the locale is gone");
        n_failed++;
    }
    n_failed += !rendered_free(&r);
}

int main(void)
{
    if (!known_locale() && !made_locale()) {
        printf("SKIPPED: no locale with a decimal comma is installed, and localedef cannot make one\n");
        return 77;
    }
    expect("{{ 1.5 }} {{ half + 1.25 }}", "1.5 1.75");
    expect("{{ 1e-7 }} {{ 1.5e300 }}", "1e-07 1.5e+300");
    expect("{{ text | float * 2 }}", "4.5");
    expect("{{ 2.675 | round(2) }} {{ 3.14159 | round(3) }}", "2.67 3.142");
    expect("{{ '%.2f %g %e' % (1.5, 0.25, 2.5) }}", "1.50 0.25 2.500000e+00");
    expect("{{ [1.5, half] | tojson }} {{ [0.1] }}", "[1.5, 0.5] [0.1]");
    expect("{{ '{}'.format(0.1) }}", "0.1");
    printf("a decimal comma in the host's locale changes nothing\n");
    return n_failed != 0;
}
