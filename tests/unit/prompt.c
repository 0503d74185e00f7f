/* prompt.c -- the prompt as a person meets it: keys go into a terminal, what
 * comes out is waited for. Nothing sleeps: each wait ends with the text it is
 * for, or fails after a minute.
 */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 60, KEPT = 1 << 20 };

static int passed, failed;

typedef struct Session {
    pid_t pid;
    int fd;
    char out[KEPT];                     /* since the last wait */
    size_t len;
    bool marked;                        /* it asked for pasted text as such */
} Session;

static void check(const char *what, bool ok, const Session *s)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("not ok %s\n", what);
    if (s) {
        printf("  the terminal had: ");
        for (size_t i = s->len > 400 ? s->len - 400 : 0; i < s->len; i++)
            printf(s->out[i] >= ' ' ? "%c" : "\\%03o",
                   (unsigned char)s->out[i]);
        printf("\n");
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a terminal with flin in it ---- */

static void child(const char *slave, char **argv)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };
    struct rlimit none = { 0 };         /* SIGQUIT would leave a core */

    setsid();
    int fd = open(slave, O_RDWR);
    if (fd < 0)
        _exit(9);
    ioctl(fd, TIOCSCTTY, 0);
    ioctl(fd, TIOCSWINSZ, &size);
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    execv(argv[0], argv);
    _exit(9);
}

static bool begin(Session *s, char **argv)
{
    char name[128];

    s->len = 0;
    s->fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (s->fd < 0 || grantpt(s->fd) || unlockpt(s->fd))
        return false;
    snprintf(name, sizeof name, "%s", ptsname(s->fd));
    fflush(stdout);
    s->pid = fork();
    if (s->pid == 0)
        child(name, argv);
    return s->pid > 0;
}

/* Where `text` is in what has come; NULL bytes do not. */
static char *find(Session *s, const char *text)
{
    s->out[s->len] = 0;
    return strstr(s->out, text);
}

/* Takes a mark out, so that what is around it is one text. */
static void forget(Session *s, const char *mark)
{
    size_t n = strlen(mark);
    char *at;

    while ((at = find(s, mark)) != NULL) {
        s->marked = true;
        s->len -= n;
        memmove(at, at + n, s->len - (size_t)(at - s->out));
    }
}

/* Reads what there is, waiting until `until` for it; false: the end. */
static bool take(Session *s, double until)
{
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    double left = until - now();

    if (s->len > KEPT - 5000) {         /* long output: its end will do */
        memmove(s->out, s->out + s->len - 1000, 1000);
        s->len = 1000;
    }
    if (left < 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
        return false;
    ssize_t n = read(s->fd, s->out + s->len, 4096);
    if (n <= 0)
        return false;
    s->len += (size_t)n;
    forget(s, "\033[?2004h");
    forget(s, "\033[?2004l");
    return true;
}

/* Waits for the text; what came up to its end is forgotten. */
static bool wait_for(Session *s, const char *text)
{
    double until = now() + LIMIT;
    char *at;

    while (!(at = find(s, text)))
        if (!take(s, until))
            return false;
    at += strlen(text);
    s->len -= (size_t)(at - s->out);
    memmove(s->out, at, s->len);
    return true;
}

static void keys(Session *s, const char *text)
{
    size_t n = strlen(text);

    while (n) {
        ssize_t k = write(s->fd, text, n);
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return;
        text += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
}

static void expect(Session *s, const char *text, const char *what)
{
    check(what, wait_for(s, text), s);
}

/* Keys, then what is to come; behind Enter, also the next prompt: keys before
 * it are not the editor's yet. */
static void turn(Session *s, const char *text, const char *want,
                 const char *what)
{
    size_t n = strlen(want);

    keys(s, text);
    expect(s, want, what);
    if (text[strlen(text) - 1] == '\r' && (n < 2
                                           || strcmp(want + n - 2, "> ")))
        expect(s, want[n - 1] == '\n' ? "> " : "\n> ", what);
}

/* Ctrl-D at a prompt; the exit code. */
static int end(Session *s)
{
    int status = 0;

    keys(s, "\004");
    double until = now() + LIMIT;
    while (take(s, until))
        continue;
    if (now() >= until)
        kill(s->pid, SIGKILL);          /* it does not end by itself */
    close(s->fd);
    waitpid(s->pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* ---- the tests ---- */

static char scratch[64];                /* a script of ours */

static void write_script(const char *name)
{
    FILE *f = fopen(scratch, "w");

    if (!f)
        return;
    fprintf(f, "local flin = require 'flin'\n"
            "return flin.variant { name = '%s', input = { q = 't k' },\n"
            "  state = { S = 'k' }, step = function (x, s)\n"
            "    local S = s.S + x.q\n"
            "    return { S = S }, S\n"
            "  end }\n", name);
    fclose(f);
}

static void typing(Session *s)
{
    turn(s, "1+1\r", "\r\n2\r\n", "an expression shows itself");
    turn(s, "_ + 40\r", "\r\n42\r\n", "_ is the last result");
    turn(s, "= 6*7, 'x'\r", "\r\n42\tx\r\n", "=");
    turn(s, "{ 1, a = 2 }\r", "{ 1, a = 2 }\r\n", "a table shows itself");
    turn(s, "x =\r", ">> ", "an open statement goes on");
    turn(s, "5\r", "> ", "and ends");
    turn(s, "x\r", "\r\n5\r\n", "with its value");
    turn(s, "for i = 7, 8 do\r", ">> ", "a block");
    turn(s, "print(i)\r", ">> ", "a block goes on");
    turn(s, "end\r", "\r\n7\r\n8\r\n", "a block runs");
    turn(s, "error 'no'\r", "]:1: no", "an error is said");
    turn(s, "function f() flin.stdlib.gla:forward { q = 3 } end\r", "> ",
         "a function");
    turn(s, "f()\r", "  1 | function f() flin.stdlib.gla:forward",
         "an error in an earlier entry shows its line");
    turn(s, "flin.zeros(2, 3)\r", "tensor [2, 3] float32", "a tensor");
    turn(s, "flin.stdlib.gla\r", "writes rank 1", "a variant");
    turn(s, "{ { 1, { 2 } } }\r", "\r\n{ { 1, {...} } }\r\n", "nested tables");
    turn(s, "flin.stdlib\r", "flin.stdlib: abc comba cyfa deltanet",
         "names");
    turn(s, "flin.einsum\r", "sums over the axes that it names", "known as");
    turn(s, "flin.stdlib.gla:forwrd {}\r", "help: did you mean 'forward'?",
         "what was meant");
    turn(s, "flin.stdlib.gla:forward{}\r", "  1 | flin.stdlib.gla:forward{}",
         "the line as it was typed");
    turn(s, "flin.zeros(2), 7\r", "0\r\n7\r\n", "a line for what follows");
}

static void editing(Session *s)
{
    turn(s, "1+9\b2\r", "\r\n3\r\n", "backspace");
    turn(s, "+1\001" "41\r", "\r\n42\r\n", "Ctrl-A");
    turn(s, "12\033[D\033[D9\033[C\033[F+1\r", "\r\n913\r\n", "arrows, End");
    turn(s, "#'\303\244\303\266\b\bb'\r", "\r\n1\r\n",
         "characters of two bytes");
    turn(s, "#'\303\244\303\266'\r", "\r\n4\r\n", "UTF-8 stays");
    turn(s, "nonsense", "nonsense", "an echo");
    turn(s, "\003", "\r\n> ", "Ctrl-C gives a line up");
    turn(s, "'fresh'\r", "\r\nfresh\r\n", "and begins another");
    turn(s, "do\r", ">> ", "a block to be given up");
    turn(s, "\003", "\r\n> ", "Ctrl-C gives a block up");
    turn(s, "1,\033\r 2\r", "\r\n1\t2\r\n", "Alt-Enter: a line break");
}

static void pasting(Session *s)
{
    turn(s, "\033[200~do\nlocal a = 5\nprint(a * a)\nend\n\033[201~", "end",
         "a pasted block is shown");
    turn(s, "\r", "\r\n25\r\n", "and runs at Enter");
    turn(s, "\033[200~2\033[201~ * 21\r", "\r\n42\r\n", "pasted into a line");
}

static void completing(Session *s)
{
    turn(s, "flin.stdlib.gated_d\t.name\r", "\r\ngated_deltanet\r\n",
         "a variant's name");
    turn(s, "flin.stdlib.simple_gla:che\t{ T = 3 }.worst < 1\r", "true",
         "a method");
    turn(s, "flin.stdlib.ml\t.na\t\r", "\r\nmlstm\r\n", "a field");
    turn(s, "flin.lo\t\t", "logsigmoid", "what there is to choose from");
    turn(s, "\025" "retu\t 9\r", "\r\n9\r\n", "a keyword");
    turn(s, ":che\t gla T=9 K=4 V=4\r", "worst ", "a command");
    turn(s, "?l2n\t\r", "x over its norm", "a name to ask about");
}

static void commands(Session *s)
{
    turn(s, "g = flin.stdlib.gated_deltanet\r", "> ", "a variant");
    turn(s, ":mask g T=4\r", "weight of token j", ":mask");
    turn(s, ":mask g T=81\r", "a cell is the greatest of 3 x 3",
         ":mask that is wider than the terminal");
    turn(s, ":dag\r", "next S", ":dag of the latest");
    turn(s, ":plan g K=32 V=32\r", "kernel 1:", ":plan");
    turn(s, ":io K=32 V=32\r", "words at least", ":io");
    turn(s, ":grad T=5 K=4 V=4\r", "worst", ":grad");
    turn(s, ":src cuda g\r", "__global__", ":src");
    turn(s, ":save /nowhere/x.svg\r", "save: /nowhere/x.svg: No such",
         ":save that fails");
    turn(s, ":time 1+1\r", " ms\r\n", ":time");
    turn(s, ":bogus\r", "there is no command :bogus", "an unknown command");
    turn(s, "?dot\r", "flin.dot(a, b [, axes]) -> value", "?");
    turn(s, ":help mask\r", "v:mask", ":help");
    turn(s, ":help\r", "flin.help() lists all there is.\r\n", "what to ask");
    turn(s, "print(flin.commands.dag(g))\r", "next S", "a function");
}

/* Scripts, what is lost, what is meant, help on what is alive. */
static void sessions(Session *s)
{
    char line[160];

    snprintf(line, sizeof line, ":load %s\r", scratch);
    turn(s, line, "session.lua: mine\r\n", ":load binds the name");
    turn(s, "_.name\r", "\r\nmine\r\n", "and _");
    write_script("yours");
    turn(s, ":reload\r", "session.lua: yours\r\n", "of an edited file");
    turn(s, "yours.name\r", "\r\nyours\r\n", "its new name");
    snprintf(line, sizeof line, "dofile '%s'.name .. '!'\r", scratch);
    turn(s, line, "yours!\r\n", "dofile");
    turn(s, "local lost = 3\r", "careful: lost ended with this entry",
         "a local");
    turn(s, "lost + 1\r", "help: the local lost ended with its entry",
         "what has become of it");
    turn(s, "local kept = 3 print(kept)\r", "\r\n3\r\n> ", "one that is used");
    turn(s, "gdn\r", "help: gdn = flin.stdlib.gated_deltanet\r\n",
         "a variable that is not there");
    turn(s, "zzyqx\r", "help: zzyqx = ... makes it", "nor anything like it");
    turn(s, "nil\r", "\r\nnil\r\n> ", "no variable");
    turn(s, "'lines' ..\r", ">> ", "half an expression");
    turn(s, "'joined'\r", "\r\nlinesjoined\r\n", "and its value");
    turn(s, "{ 1,\r", ">> ", "half a table");
    turn(s, "2, 3 }\r", "\r\n{ 1, 2, 3 }\r\n", "and the whole one");
    turn(s, "?yours\r", "yours:forward", "? of a variant");
    turn(s, "?yours:mask\r", "v:mask([options])", "? of its method");
    turn(s, "x = flin.zeros(2)\r", "> ", "a tensor");
    turn(s, "?x.shape\r", "t.shape : integer[]", "? of its field");
    turn(s, "?x.shpe\r", "x is a tensor, and has no shpe", "? of no field");
    turn(s, "flin.stdlib.gla:mask { format = 'svg', T = 4 }\r",
         "a drawing of", "a drawing is not spelled out");
    snprintf(line, sizeof line, ":save %s.svg\r", scratch);
    turn(s, line, "saved ", "the last drawing");
    snprintf(line, sizeof line, ":save %s.svg dag gla theme=dark\r", scratch);
    turn(s, line, "saved ", "a dag");
    turn(s, ":save /nowhere.gif gla\r", ".svg, .png or .dot", ":save of what?");
    turn(s, ":src cuda gla K=16 V=16\r", "paged: ", "a long text by the pager");
    keys(s, ":quit\r");
}

static void before(Session *s)
{
    turn(s, "mine.name .. _.name\r", "\r\nminemine\r\n", "it has its names");
    write_script("theirs");
    turn(s, ":reload\r", "session.lua: theirs", "and is read again");
}

/* A terminal that answers what flin asks it. */
static void pictures(Session *s)
{
    keys(s, ":show mask gla T=8\r");
    expect(s, "\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\\033[c",
           "the terminal is asked");
    keys(s, "\033_Gi=31;OK\033\\\033[?62;c");
    while (!find(s, "> ") && take(s, now() + LIMIT))
        continue;
    if (find(s, "librsvg2-2")) {
        printf("skipped: pictures in the terminal: no librsvg\n");
        return;
    }
    check("kitty's picture", find(s, "\033_Ga=T,f=100,q=2,m=1;iVBORw0KGgo"), s);
    s->len = 0;
    keys(s, ":show plan gla K=16 V=16\r");
    expect(s, "\033[c", "asked again");
    keys(s, "\033[?62;4;22c");
    expect(s, "\033Pq\"1;1;", "sixel");
    expect(s, "> ", "its end");
    s->len = 0;
    keys(s, ":show dag gla\r");
    expect(s, "\033[c", "once more");
    keys(s, "\033[?62;22c");
    expect(s, "this terminal takes no pictures", "neither");
    expect(s, "> ", "a prompt again");
}

/* What runs is stopped, and the session lives; seconds that it took. */
static double interrupt(Session *s, const char *what, const char *text)
{
    keys(s, "print('be' .. 'gun') ");
    keys(s, text);
    keys(s, "\r");
    expect(s, "begun", what);
    double start = now();
    keys(s, "\003");
    expect(s, "interrupted", what);
    double spent = now() - start;
    expect(s, "> ", what);
    turn(s, "'al' .. 'ive'\r", "alive", what);
    return spent;
}

static void interrupting(Session *s)
{
    double lua = interrupt(s, "Ctrl-C in Lua", "while true do end");
    double caught = interrupt(s, "Ctrl-C through pcall",
        "while true do pcall(function () while true do end end) end");
    turn(s, "z = flin.zeros(1, 20000, 4, 64) v = flin.stdlib.linear "
         "x = { q = z, k = z, v = z, serial = true } print('re' .. 'ady')\r",
         "ready", "tensors");
    double cpu = interrupt(s, "Ctrl-C in a call",
                           "while true do v:forward(x) end");
    double truth = interrupt(s, "Ctrl-C in the reference",
        "x.serial = nil v:reference(x)");
    double ilp = interrupt(s, "Ctrl-C in planning",
        "v = flin.stdlib.precond_mamba3 n = 16 while true do n = n + 2 "
        "v:plan { backward = true, K = n, V = n, machine = 'h200' } end");

    keys(s, ":bench gla seconds=50\r");
    expect(s, ":bench gla seconds=50: ", "progress is said");
    expect(s, " s (Ctrl-C stops)", "and for how long");
    turn(s, "\003", "interrupted", "Ctrl-C in a command");
    expect(s, "> ", "a prompt again");
    check("stopped in time, on a busy machine too", fmax(fmax(lua, caught),
          fmax(fmax(cpu, truth), ilp)) < 3, NULL);
    printf("stopped after %.0f, %.0f, %.0f, %.0f, %.0f ms\n", 1e3 * lua,
           1e3 * caught, 1e3 * cpu, 1e3 * truth, 1e3 * ilp);
}

/* Threads of the process; 0: not known. */
static int count_threads(pid_t pid)
{
    char line[256];
    int n = 0;

    snprintf(line, sizeof line, "/proc/%d/status", (int)pid);
    FILE *f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

/* NVRTC runs in a thread of its own, which is left to itself: seconds from
 * Ctrl-C to the answer, or what kept it from being caught at work. */
enum { MISSED = -1, NO_NVRTC = -2 };
static double interrupt_compiler(Session *s)
{
    int before = count_threads(s->pid);
    double until = now() + LIMIT;

    keys(s, "v:compile { arch = 'sm_80', K = 128, V = 128, backward = true } "
            "-- now\r");
    expect(s, "-- now\r\n", "Ctrl-C in NVRTC: an echo");
    while (count_threads(s->pid) == before && !find(s, "> ") && now() < until)
        take(s, now() + 0.005);
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    if (find(s, "> "))
        return find(s, "run-time compiler, was not found") ? NO_NVRTC : MISSED;
    double start = now();
    keys(s, "\003");
    expect(s, "interrupted", "Ctrl-C in NVRTC");
    double spent = now() - start;
    expect(s, "> ", "Ctrl-C in NVRTC: a prompt");
    return spent;
}

/* The quickest of a few, as others may be using the machine. The session ends
 * at once, with the compiler's thread still there. */
static void compiling(Session *s)
{
    enum { TRIES = 12 };
    double best = LIMIT;

    turn(s, "v = flin.stdlib.gla\r", "> ", "a variant");
    for (int i = 0; i < TRIES && best > 0.25; i++) {
        double spent = interrupt_compiler(s);
        if (spent == NO_NVRTC || !count_threads(s->pid)) {
            printf("skipped: Ctrl-C in NVRTC: no NVRTC, or no /proc\n");
            return;
        }
        best = spent >= 0 && spent < best ? spent : best;
    }
    turn(s, "'al' .. 'ive'\r", "alive", "the session lives on");
    check("Ctrl-C in NVRTC within 250 ms", best <= 0.25, s);
    printf("stopped after %.0f ms in NVRTC\n", 1e3 * best);
}

static void resizing(Session *s)
{
    struct winsize size = { .ws_row = 10, .ws_col = 30 };

    keys(s, "#'0123456789012345678901234567890123456789");
    expect(s, "456789", "a long line");
    ioctl(s->fd, TIOCSWINSZ, &size);
    turn(s, "0123456789'\r", "\r\n50\r\n", "the line outlives a resize");
    size.ws_col = 80;
    ioctl(s->fd, TIOCSWINSZ, &size);
    turn(s, "'wide'\r", "\r\nwide\r\n", "and another");
}

static void long_output(Session *s)
{
    turn(s, "for i = 1, 30000 do print(i, ('x'):rep(60)) end\r", "\n30000\t",
         "long output comes whole");
    turn(s, "'after'\r", "after", "and the prompt after it");
}

static void history(Session *s)
{
    turn(s, "print(11 * 11)\r", "\r\n121\r\n", "to be remembered");
    turn(s, "\033[A\r", "\r\n121\r\n", "Up");
    turn(s, "for i = 3, 3 do\r", ">> ", "a block to be remembered");
    turn(s, "print(i * i) end\r", "\r\n9\r\n", "its end");
    turn(s, "'between'\r", "between", "something else");
    turn(s, "for\033[A\r", "\r\n9\r\n", "Up finds what begins so");
    turn(s, "\022" "11 \r", "\r\n121\r\n", "Ctrl-R");
}

static bool is_cooked(const Session *s)
{
    struct termios t;

    return tcgetattr(s->fd, &t) == 0 && (t.c_lflag & ICANON)
        && (t.c_lflag & ECHO);
}

/* A signal ends it: at the prompt the terminal is left as it was, and what
 * runs then is remembered. */
static void signalled(char **argv, const char *what, int sig, const char *line)
{
    static Session s;
    double until = now() + LIMIT;
    int status = 0;

    check(what, begin(&s, argv), NULL);
    expect(&s, "> ", what);
    check("keys come one by one", !is_cooked(&s), &s);
    if (line) {
        keys(&s, line);
        expect(&s, "begun", what);
    }
    kill(s.pid, sig);
    while (take(&s, until))
        continue;
    check("the terminal is as it was", is_cooked(&s), &s);
    if (now() >= until)
        kill(s.pid, SIGKILL);
    waitpid(s.pid, &status, 0);
    check(what, WIFSIGNALED(status) && WTERMSIG(status) == sig, &s);
    close(s.fd);
}

static void colours(Session *s)
{
    turn(s, "while", "\033[35mwhile\033[0m", "keywords have a colour");
    turn(s, " 'a'", "\033[32m'a'\033[0m", "strings have another");
    turn(s, "\025" "1+1\r", "\r\n2\r\n", "the line is what was typed");
    turn(s, "local x = 3 print(x * x)\r", "\033[35mlocal\033[0m x",
         "keys that come at once have colours, too");
    turn(s, ":mask gla T=4\r", "\342\226\200", "half blocks");
}

/* ---- */

/* A fresh folder for the history, and nothing of the user's own. */
static void set_environment(char *folder)
{
    char *made = mkdtemp(folder);

    setenv("XDG_STATE_HOME", made ? made : "/nowhere", 1);
    setenv("HOME", "/nowhere", 1);
    setenv("TERM", "xterm-256color", 1);
    setenv("NO_COLOR", "1", 1);
    setenv("PAGER", "sed 's/^/paged: /'", 1);
    unsetenv("FLIN_GRAPHICS");
    unsetenv("COLORTERM");
    unsetenv("FLIN_INIT");
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);    /* libedit's own */
}

static void check_file(const char *folder)
{
    char path[128], text[4096] = "";
    struct stat st;

    snprintf(path, sizeof path, "%s/flin/history", folder);
    check("the history's mode", stat(path, &st) == 0
          && (st.st_mode & 0777) == 0600, NULL);
    FILE *f = fopen(path, "r");
    if (f) {
        size_t n = fread(text, 1, sizeof text - 1, f);
        text[n] = 0;
        fclose(f);
    }
    check("the history's text", strstr(text, "\nprint(11 * 11)\n")
          && strstr(text, "\nfor i = 3, 3 do\\nprint(i * i) end\n")
          && strstr(text, "\nprint('be' .. 'gun') repeat until false\n"), NULL);
    snprintf(path, sizeof path, "rm -r '%s'", folder);
    check("removed", system(path) == 0, NULL);
}

/* A pipe in the history's place: the prompt comes, and goes on. */
static void without_history(char **argv, const char *folder)
{
    static Session s;
    char path[128];

    snprintf(path, sizeof path, "cd '%s/flin' && rm -f history && mkfifo "
             "history", folder);
    check("a pipe as the history", system(path) == 0 && begin(&s, argv), NULL);
    expect(&s, "> ", "the prompt beside a pipe");
    turn(&s, "print(6 * 7)\r", "\r\n42\r\n", "a line beside a pipe");
    check("the end beside a pipe", end(&s) == 0, &s);
    snprintf(path, sizeof path, "rm '%s/flin/history'", folder);
    check("the pipe is removed", system(path) == 0, NULL);
}

static void run(char **argv, const char *what, void (*f)(Session *))
{
    static Session s;

    if (!begin(&s, argv)) {
        check(what, false, NULL);
        return;
    }
    expect(&s, "> ", what);
    f(&s);
    int code = end(&s);
    if (code)
        printf("exit code %d\n", code);
    check(what, code == 0, &s);
}

int main(int argc, char **argv)
{
    static Session s;
    char folder[] = "/tmp/flin-test-XXXXXX", flin[1024];
    char *args[] = { flin, NULL }, *plain[] = { flin, "--color=never", NULL };
    void (*const tests[])(Session *) = {
        typing, editing, pasting, completing, commands, interrupting,
        compiling, resizing, long_output, history, pictures
    };

    (void)argc;
    snprintf(flin, sizeof flin, "%.900s", argv[0]);
    for (int i = 0; i < 3 && strrchr(flin, '/'); i++)
        *strrchr(flin, '/') = 0;
    strcat(flin, "/flin");
    set_environment(folder);
    signal(SIGPIPE, SIG_IGN);
    if (!begin(&s, args) || !wait_for(&s, "> ")) {
        printf("skip: no terminal to be had\n");
        return 0;
    }
    end(&s);
    bool edits = s.marked;
    snprintf(scratch, sizeof scratch, "%s/session.lua", folder);
    write_script("mine");
    char *with[] = { flin, "-i", scratch, NULL };
    if (edits) {
        run(args, "a session", typing);
        run(args, "scripts", sessions);
        write_script("mine");
        run(with, "a script before", before);
        without_history(args, folder);
        for (size_t i = 1; i < sizeof tests / sizeof *tests; i++)
            run(args, "a session", tests[i]);
        signalled(args, "SIGTERM at the prompt", SIGTERM, NULL);
        signalled(args, "SIGHUP at the prompt", SIGHUP, NULL);
        signalled(args, "SIGQUIT at the prompt", SIGQUIT, NULL);
        signalled(args, "SIGTERM while it runs", SIGTERM,
                  "print('be' .. 'gun') repeat until false\r");
        check_file(folder);
        unsetenv("NO_COLOR");
        run(args, "a session in colours", colours);
    }
    setenv("TERM", "dumb", 1);
    run(plain, "a dumb terminal", typing);
    if (!edits)
        printf("skip: no libedit here\n");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
