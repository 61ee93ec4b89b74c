package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/lease"
)

// level is the map of the packages: an import goes to a lower level.
var level = map[string]int{
	"holdfast": 9, "holdfast/tui/cli": 8, "holdfast/tui": 7, "holdfast/tui/demo": 7, "holdfast/watch": 6,
	"holdfast/lease": 5, "holdfast/sweep": 5, "holdfast/fslock": 4, "holdfast/tui/text": 3,
	"holdfast/fslock/audit": 2, "holdfast/fslock/verdict": 2, "holdfast/fslock/proc/proctest": 1,
	"holdfast/fslock/disktest": 0,
	"holdfast/fslock/proc":     0, "holdfast/fslock/record": 0, "holdfast/tui/ttyguard": 0,
}

// only says who may import what matches: the first pattern is of the imported package, the second of the
// importing one, where a test package ends in "_test".
var only = [][2]*regexp.Regexp{
	{regexp.MustCompile(`^holdfast/fslock$`), regexp.MustCompile(`^holdfast(/fslock|/sweep|/watch|/tui.*)?(_test)?$`)},
	{regexp.MustCompile(`^holdfast/tui/demo$`), regexp.MustCompile(`^holdfast/tui/cli(_test)?$`)},
	{regexp.MustCompile(`^holdfast/tui`), regexp.MustCompile(`^holdfast(/tui.*)?(_test)?$`)},
	{regexp.MustCompile(`^holdfast/fslock/(proc/proctest|disktest)$`), regexp.MustCompile(`_test$`)},
	{
		regexp.MustCompile(`^github.com/charmbracelet/(bubble|lipgloss)`),
		regexp.MustCompile(`^holdfast/tui(_test|/ttyguard_test)?$`),
	},
	{regexp.MustCompile(`^github.com/fsnotify/`), regexp.MustCompile(`^holdfast/(watch|fslock)(_test)?$`)},
	{regexp.MustCompile(`^github.com/shirou/gopsutil/`), regexp.MustCompile(`^holdfast/fslock/proc(_test)?$`)},
}

func TestImportsGoDownward(t *testing.T) {
	const format = `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}{{range .TestImports}}{{$p}}_test {{.}}
{{end}}{{range .XTestImports}}{{$p}}_test {{.}}
{{end}}`
	for _, goos := range []string{"linux", "darwin", "freebsd", "windows"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-e", "-f", format, "./...")
		list.Env = append(os.Environ(), "GOOS="+goos)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), "holdfast_test testing\n") {
			t.Fatalf("on %s, go list does not tell of this file: %s", goos, out)
		}
		for line := range strings.Lines(string(out)) {
			from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
			if why := forbidden(from, to); why != "" {
				t.Errorf("on %s, %s imports %s: %s", goos, from, to, why)
			}
		}
	}
}

func forbidden(from, to string) string {
	pkg := strings.TrimSuffix(from, "_test")
	if pkg == to { // a test of the package from outside
		return ""
	}
	for _, rule := range only {
		if rule[0].MatchString(to) && !rule[1].MatchString(from) {
			return "that is for " + rule[1].String()
		}
	}
	fromLevel, known := level[pkg]
	if !known {
		return "the importing package has no place in the map"
	}
	toLevel, ours := level[to]
	switch {
	case !ours && strings.HasPrefix(to, "holdfast/"):
		return "the imported package has no place in the map"
	case to == "holdfast/fslock/proc/proctest": // for tests of any level
	case ours && toLevel >= fromLevel:
		return "an import goes downward"
	}
	return ""
}

func TestForbiddenImportsAreSeen(t *testing.T) {
	for _, c := range [][2]string{
		{"holdfast/lease", "holdfast/fslock"},
		{"holdfast/fslock", "holdfast/lease"},
		{"holdfast/fslock/record", "holdfast/fslock/proc"},
		{"holdfast/fslock/verdict", "holdfast/watch"},
		{"holdfast/watch_test", "holdfast/tui/demo"},
		{"holdfast/tui", "holdfast/tui/cli"},
		{"holdfast/watch", "holdfast/tui/text"},
		{"holdfast/lease", "holdfast/fslock/proc/proctest"},
		{"holdfast/lease", "github.com/fsnotify/fsnotify"},
		{"holdfast/tui/cli", "github.com/charmbracelet/lipgloss"},
		{"holdfast/tui/ttyguard", "github.com/charmbracelet/bubbletea"},
		{"holdfast/tui/text", "github.com/charmbracelet/bubbles/key"},
		{"holdfast/watch", "github.com/shirou/gopsutil/v4/process"},
		{"holdfast/extra", "os"},
		{"holdfast/tui", "holdfast/extra"},
	} {
		if forbidden(c[0], c[1]) == "" {
			t.Errorf("%s may import %s", c[0], c[1])
		}
	}
	for _, from := range []string{"holdfast/fslock/proc_test", "holdfast/fslock/record_test", "holdfast/watch_test"} {
		if why := forbidden(from, "holdfast/fslock/proc/proctest"); why != "" {
			t.Errorf("%s may not import proctest: %s", from, why)
		}
	}
}

// The five names of the architecture, and nothing beside them but what a Go program needs.
func TestTopLevel(t *testing.T) {
	allowed := strings.Fields(`fslock lease sweep tui watch
		main.go main_test.go testdata go.mod go.sum README.md LICENSE
		holdfast holdfast.exe`) // what go build leaves, which is not committed
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, ".") && !slices.Contains(allowed, name) {
			t.Errorf("%s has no place at the top", name)
		}
	}
}

// The program itself stands in the scripts' path, and in that of all tests here.
func TestMain(m *testing.M) {
	// A program with the race detector in it would wait for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){"holdfast": main})
}

// Each script is headed by the case that it is about.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			dead, err := deadPID()
			if err != nil {
				return err
			}
			env.Setenv("DEAD", strconv.Itoa(dead))
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return os.Mkdir(env.Getenv("HOME"), 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "until": until, "envfile": envfile, "mklease": mklease, "mklock": mklock,
		},
	})
}

// exits CODE COMMAND... runs the command and wants that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if got := exitCode(ts.Exec(args[1], args[2:]...)); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// until CODE COMMAND... runs the command again and again until it has that exit code.
func until(ts *testscript.TestScript, _ bool, args []string) {
	for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if strconv.Itoa(exitCode(ts.Exec(args[1], args[2:]...))) == args[0] {
			return
		}
	}
	ts.Fatalf("never had exit code %s", args[0])
}

// envfile FROM TO copies a file with the variables in it replaced.
func envfile(ts *testscript.TestScript, _ bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// exitCode is the code of a command that ran; -1 when it did not, or was killed.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// mklease DIR ID [KEY=VALUE...] writes a lease of this test's process, renewed two seconds ago. Keys: pid, host,
// owner, block, session, channel, version, epoch, claim, start (right, none, or a number), acquired, renewed and mtime
// (seconds from now; mtime follows renewed), and counter (a number or any text; none is written without it).
func mklease(ts *testscript.TestScript, _ bool, args []string) {
	self := proc.Local().Self()
	set := settings(ts, args[2:], map[string]string{
		"pid": strconv.Itoa(self.PID), "host": strings.ToLower(self.Host), "owner": "owner-1", "block": "block-1", "session": "",
		"channel": "stable", "version": "0.57", "epoch": "5", "claim": "claim-1", "start": "right",
		"acquired": "-60", "renewed": "-2", "mtime": "", "counter": "",
	})
	l := record.Lease{
		InstanceID: args[1], OwnerBootID: set["owner"], BlockID: set["block"], PID: uint32(number(ts, set["pid"])),
		AcquiredAtMS: fromNow(ts, set["acquired"]).UnixMilli(), RenewedAtMS: fromNow(ts, set["renewed"]).UnixMilli(),
		Epoch: number(ts, set["epoch"]), Hostname: set["host"], Channel: set["channel"], Version: set["version"],
		ClaimID: set["claim"],
	}
	if set["session"] != "" {
		l.SessionID = new(set["session"])
	}
	switch start := set["start"]; start {
	case "right":
		l.PIDStartS = self.StartUnix
	case "none":
	default:
		l.PIDStartS = number(ts, start)
	}
	path := filepath.Join(ts.MkAbs(args[0]), args[1])
	put(ts, path+".lease.json", l.Encode(), cmp.Or(set["mtime"], set["renewed"]))
	if counter := set["counter"]; counter != "" {
		put(ts, path+".epoch", []byte(counter+"\n"), "0")
	}
}

// mklock PATH [KEY=VALUE...] writes a lock, token or temp of this test's process, with a heartbeat two seconds ago.
// Keys: pid, host, start (right, none, or a number), boot (here, none, or any text), created, beat and mtime (seconds
// from now; mtime follows beat), writer.
func mklock(ts *testscript.TestScript, _ bool, args []string) {
	self := proc.Local().Self()
	set := settings(ts, args[1:], map[string]string{
		"pid": strconv.Itoa(self.PID), "host": self.Host, "start": "right", "boot": "here", "created": "-60", "beat": "-2",
		"mtime": "", "writer": "writer-1",
	})
	l := record.Lock{
		PID: uint32(number(ts, set["pid"])), Hostname: set["host"], WriterEpoch: set["writer"],
		CreatedAtMS:   uint64(fromNow(ts, set["created"]).UnixMilli()),
		HeartbeatAtMS: uint64(fromNow(ts, set["beat"]).UnixMilli()),
	}
	switch start := set["start"]; start {
	case "right":
		l.ProcessStartTime = &self.StartTicks
	case "none":
	default:
		l.ProcessStartTime = new(number(ts, start))
	}
	switch boot := set["boot"]; boot {
	case "here":
		l.BootID = &self.BootID
	case "none":
	default:
		l.BootID = &boot
	}
	put(ts, ts.MkAbs(args[0]), l.Encode(), cmp.Or(set["mtime"], set["beat"]))
}

func settings(ts *testscript.TestScript, args []string, set map[string]string) map[string]string {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		if _, known := set[key]; !known {
			ts.Fatalf("no key %q", key)
		}
		set[key] = value
	}
	return set
}

func number(ts *testscript.TestScript, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	ts.Check(err)
	return n
}

func fromNow(ts *testscript.TestScript, seconds string) time.Time {
	n, err := strconv.ParseFloat(seconds, 64)
	ts.Check(err)
	return time.Now().Add(time.Duration(n * float64(time.Second)))
}

func put(ts *testscript.TestScript, path string, data []byte, mtime string) {
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, data, 0o600))
	at := fromNow(ts, mtime)
	ts.Check(os.Chtimes(path, at, at))
}

// deadPID is the pid of a process that ran and is reaped.
func deadPID() (int, error) {
	cmd := exec.Command("holdfast", "version")
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// leases makes a root with a directory of leases, and says where the one of x would be.
func leases(t *testing.T) (root, file string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root, filepath.Join(root, "leases", "x.lease.json")
}

// A terminal that answers no query, as the controlling one: who asks it waits for seconds, and writes first.
func TestMuteTerminal(t *testing.T) {
	root, _ := leases(t)
	for _, c := range []struct {
		args  []string
		first string
	}{
		{[]string{"version"}, "holdfast "},
		{[]string{"ls", root}, "Nothing is stuck."},
		{[]string{"why", "--root", root}, "Nothing is stuck."},
		{[]string{"nonsense"}, "holdfast: unknown verb"},
	} {
		fastest := time.Hour
		for range 5 { // a busy machine may be slow once; who waits for an answer is slow each time
			cmd := exec.CommandContext(t.Context(), "holdfast", c.args...)
			cmd.Env = append(os.Environ(), "TERM=xterm-256color")
			begin := time.Now()
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
			if errors.Is(err, pty.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, _ := io.ReadAll(terminal) // ends in an error when the terminal's other end closes
			_ = cmd.Wait()
			fastest = min(fastest, time.Since(begin))
			_ = terminal.Close()
			if !strings.HasPrefix(string(out), c.first) {
				t.Fatalf("%v: the terminal got %q", c.args, out)
			}
			if fastest < time.Second {
				break
			}
		}
		if fastest > time.Second {
			t.Errorf("%v took %v at best", c.args, fastest)
		}
	}
}

// The first screen on such a terminal is there soon, and q ends it.
func TestScreenOnMuteTerminal(t *testing.T) {
	root, _ := leases(t)
	cmd := exec.CommandContext(t.Context(), "holdfast", root)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if errors.Is(err, pty.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "Nothing is stuck.") {
		n, err := terminal.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(buf[:n])
	}
	if _, err := terminal.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, terminal) }() // ends with the terminal
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// `holdfast ls | head -1`: the reader has seen enough, and nobody complains.
func TestReaderThatStops(t *testing.T) {
	root, _ := leases(t)
	for i := range 2000 { // more than a pipe holds
		path := filepath.Join(root, "leases", fmt.Sprintf("agent-with-a-rather-long-name-%d.epoch", i))
		if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ls", root}, {"ls", "--json", root}, {"ls", "--jsonl", root}} {
		cmd := exec.CommandContext(t.Context(), "holdfast", args...)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()
		_ = cmd.Wait()
		if complaint.Len() > 0 {
			t.Errorf("%v: %s", args, &complaint)
		}
	}
}

// Looking writes nothing: not a file, not a time, not a lock.
func TestLookingWritesNothing(t *testing.T) {
	root, file := leases(t)
	if err := exec.CommandContext(t.Context(), "holdfast", "claim", "x", "--for", "10ms", "--root", root).Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(root, "link.lock")); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	before := tree(t, root)
	for _, args := range [][]string{
		{"ls", root},
		{"ls", "--json", root},
		{"why", "--root", root},
		{"why", "--root", root, "x"},
		{root},
		{"verify", "x", "--claim-id", "c", "--root", root},
		{"wait", "x", "--timeout", "0", "--root", root},
		{"watch", "--timeout", "0", root},
		{"watch", "--json", "--all", "--timeout", "300ms", root},
		{"why", "x", "--observe", "1ms", "--root", root},
		{"break", "x", "--root", root},
		{"break", filepath.Join(root, "link.lock"), "--dry-run", "--root", root},
		{"sweep", "--temps", "--root", root},
		{"log", "x", "--root", root},
	} {
		looks := exec.CommandContext(t.Context(), "holdfast", args...)
		looks.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(root, "state"))
		_ = looks.Run()
		if after := tree(t, root); after != before {
			t.Errorf("after %v:\n%s\nbefore:\n%s", args, after, before)
		}
	}
}

// tree is everything below dir, with its times and contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d", path, info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", data)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A program holds a lease while it works; README shows this.
func Example() {
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Println(drive(context.Background(), dir))
	// Output: <nil>
}

func drive(ctx context.Context, dir string) error {
	store := &lease.Store{Dir: dir}
	held, err := store.Claim(ctx, "reviewer", lease.Claimant{Channel: "ci", Version: "1.4"})
	if err != nil { // errors.Is(err, lease.ErrHeld): it says by whom, and until when
		return err
	}
	kept := make(chan error, 1)
	go func() { kept <- held.Keep(ctx) }() // renews until ctx ends, it is released, or it is lost

	// Work, and stop when held.Lost() is closed.

	released := held.Release()
	return errors.Join(<-kept, released)
}

func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("main_test.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	code, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(string(source), code) {
		t.Errorf("README shows other code than drive:\n%s", code)
	}
}

// README says what `holdfast --help` knows: every verb that is there, and none that is not.
func TestReadmeKnowsTheVerbs(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{
		"ls", "why", "watch", "claim", "verify", "release", "acquire", "run", "wait", "break", "sweep", "epoch", "log", "demo", "version",
		"completion",
	} {
		if !regexp.MustCompile("`(holdfast )?" + verb + `[ ` + "`" + `\[]`).Match(readme) {
			t.Errorf("README does not tell of %s", verb)
		}
	}
}
