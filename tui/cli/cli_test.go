package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/fslock/record"
	"holdfast/lease"
	"holdfast/tui"
	"holdfast/tui/text"
	"holdfast/watch"
)

// writer is a standard output that does what a test wants.
type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// run runs the command line with no terminal and an empty home.
func run(t *testing.T, stdout writer, args ...string) (code int, out, complaint string) {
	t.Helper()
	var o, e bytes.Buffer
	env := Env{
		Stdin: os.Stdin, Stdout: &o, Stderr: &e, Home: t.TempDir(),
		Getenv: func(string) string { return "" },
	}
	if stdout != nil {
		env.Stdout = stdout
	}
	code = Main(t.Context(), args, env)
	return code, o.String(), e.String()
}

func TestPanicIsAnInternalError(t *testing.T) {
	code, _, complaint := run(t, func([]byte) (int, error) { panic("the \x1b[2J moon") }, "ls")
	if code != 70 || !strings.Contains(complaint, `internal error: the \x1b[2J moon`) {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

func TestReaderThatIsGoneIsNoComplaint(t *testing.T) {
	gone := &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
	code, _, complaint := run(t, func([]byte) (int, error) { return 0, gone }, "ls")
	if code != 128+13 || complaint != "" {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

func TestFullDiskIsAFailure(t *testing.T) {
	code, _, complaint := run(t, func([]byte) (int, error) { return 0, syscall.ENOSPC }, "ls")
	if code != 1 || !strings.Contains(complaint, syscall.ENOSPC.Error()) {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

func TestNobodyKnowsOfAHoldThatCannotBeTold(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, _, _ := run(t, func([]byte) (int, error) { return 0, errors.New("no room") }, "claim", "x", "--hold", "--root", root)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(root, "leases", "x.lease.json")); !os.IsNotExist(err) {
		t.Errorf("the lease is there: %v", err)
	}
}

func TestNamesFromDiskAreHarmlessOnTheScreen(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a\x1b[2J.lock", "b\n.lock", "c\xff.lock"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Skip(err) // a file system that takes no such names shows none
		}
	}
	for _, args := range [][]string{{"ls", root}, {"why", "--root", root}, {"why", "--root", root, "\x1b[2J"}} {
		_, out, complaint := run(t, nil, args...)
		if all := out + complaint; !utf8.ValidString(all) || strings.Contains(all, "\x1b") {
			t.Errorf("%q: %q %q", args, out, complaint)
		}
	}
	code, out, _ := run(t, nil, "why", filepath.Join(root, "a\x1b[2J.lock"))
	if code != 7 || !strings.Contains(out, `a\x1b[2J.lock`) {
		t.Errorf("exit code %d: %q", code, out)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	s := sample()
	s.Entries[0].Name = strings.Repeat("researcher-", 20)
	for _, width := range []int{20, 50, 80, 120, 400} {
		var out bytes.Buffer
		a := &app{Env: Env{Output: true, Width: width, Getenv: func(string) string { return "" }}, color: text.ColorNever}
		rows := []row{head()}
		for _, e := range s.Entries {
			rows = append(rows, line(text.Style{}, e, s, 0))
		}
		a.printRows(&out, text.Style{}, rows)
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if text.Width(line) > width {
				t.Errorf("%d cells at width %d: %q", text.Width(line), width, line)
			}
		}
		if !strings.Contains(out.String(), "LIVE") {
			t.Errorf("no state at width %d: %s", width, &out)
		}
		if last := strings.Contains(out.String(), "HOST"); last != (width >= 80) {
			t.Errorf("width %d: the last column is there: %v", width, last)
		}
	}
}

// A record may hold 64 KiB of anything: it spoils neither the table nor a sentence, and JSON has all of it.
func TestOneHostileRecordSpoilsNothing(t *testing.T) {
	root := t.TempDir()
	leases := filepath.Join(root, "leases")
	if err := os.Mkdir(leases, 0o755); err != nil {
		t.Fatal(err)
	}
	long := func(what string) string { return strings.Repeat(what+"\x1b[2J", 600) }
	for _, l := range []record.Lease{
		{InstanceID: long("id"), OwnerBootID: long("owner"), BlockID: long("block"), Hostname: long("host"), Channel: long("channel"), Version: "1"},
		{InstanceID: "fine", Hostname: "far", Channel: "stable", Version: "0.57"},
	} {
		l.PID, l.AcquiredAtMS, l.RenewedAtMS, l.ClaimID = 77, time.Now().UnixMilli(), time.Now().UnixMilli(), "c"
		file := "fine"
		if len(l.InstanceID) > len(file) {
			file = strings.Repeat("n", 150)
		}
		if err := os.WriteFile(filepath.Join(leases, file+".lease.json"), l.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := strings.Repeat("n", 150)
	for _, c := range []struct {
		args []string
		most int // cells of a line
	}{
		{[]string{"ls", root}, 240},
		{[]string{"why", "--root", root, id}, 700},
		{[]string{"claim", "--root", root, id, "--hold"}, 1000},
		{[]string{"verify", "--root", root, id, "--claim-id", "d"}, 1000},
	} {
		_, out, complaint := run(t, nil, c.args...)
		for line := range strings.Lines(out + complaint) {
			if n := text.Width(strings.TrimSuffix(line, "\n")); n > c.most {
				t.Errorf("%q: a line of %d cells: %.300s", c.args, n, line)
			}
		}
	}
	_, out, _ := run(t, nil, "ls", "--json", root)
	var look jsonLook
	if err := json.Unmarshal([]byte(out), &look); err != nil || len(look.Entries) != 2 || look.Entries[1].Holder == nil || look.Entries[1].Holder.Host != long("host") {
		t.Errorf("JSON is not exact: %v, %.500s", err, out)
	}
}

func TestMarksAreCutOnlyForWantOfRoom(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "? UNKNOWN a.lock clock held 12m legacy"},
		{80, "? UNKNOWN a.lock clock held 12m legacy"},
		{44, "? UNKNOWN a.lock clock held 12m legacy"},
		{30, "? UNKNOWN a.lock clock held 1…"},
	} {
		r := row{marks: " clock held 12m legacy"}
		r.cells[tui.ColState], r.cells[tui.ColName] = "? UNKNOWN", "a.lock"
		var out bytes.Buffer
		a := &app{Env: Env{Output: c.width > 0, Width: c.width, Getenv: func(string) string { return "" }}, color: text.ColorNever}
		a.printRows(&out, text.Style{}, []row{r})
		if got := strings.TrimSpace(out.String()); got != c.want {
			t.Errorf("width %d: %q, want %q", c.width, got, c.want)
		}
	}
}

// Whatever prints, a disk that is full is told, with one and the same code.
func TestEveryVerbMissesWhatItCouldNotPrint(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--help"},
		{"help", "ls"},
		{"ls", "--help"},
		{"completion", "bash"},
		{"completion", "zsh"},
		{"completion"},
		{"version"},
		{"--version"},
		{"ls", root},
		{"ls", "--json", root},
		{"why", "--root", root},
		{"break", "x", "--root", root},
		{"sweep", root},
		{"wait", "x", "--root", root},
		{"watch", root},
		{"demo", "--list"},
		{"claim", "x", "--for", "1ms", "--root", root},
	} {
		code, _, complaint := run(t, func([]byte) (int, error) { return 0, syscall.ENOSPC }, args...)
		if code != 1 || strings.Count(complaint, "standard output") != 1 || !strings.Contains(complaint, syscall.ENOSPC.Error()) {
			t.Errorf("%q: exit code %d: %s", args, code, complaint)
		}
	}
	// The lease was held and given up, and only the last line is missing.
	lines := 0
	code, _, complaint := run(t, func(p []byte) (int, error) {
		if lines++; lines > 1 {
			return 0, syscall.ENOSPC
		}
		return len(p), nil
	}, "claim", "x", "--for", "1ms", "--root", root)
	if code != 1 || !strings.Contains(complaint, "standard output") {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

func TestWhatTheSystemRefusesHasANextStep(t *testing.T) {
	dir := t.TempDir()
	denied := "The permissions"
	if os.Geteuid() == 0 {
		denied = "Root may not do that either"
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&lease.IOError{Op: "claim", ID: "x", Err: syscall.EACCES}, denied},
		{&fs.PathError{Op: "stat", Path: filepath.Join(dir, "no", "x.lock"), Err: syscall.ENOENT}, "`mkdir -p " + filepath.Join(dir, "no") + "`"},
		{&fs.PathError{Op: "stat", Path: filepath.Join(dir, "x.lock"), Err: syscall.ENOENT}, ""},
		{&lease.IOError{Op: "release", ID: "x", Err: syscall.EROFS}, "mounted read-only"},
		{&lease.IOError{Op: "claim", ID: "x", Err: lease.ErrReadOnly}, "without --read-only"},
		{syscall.EIO, ""},
	} {
		var complaint bytes.Buffer
		a := &app{Env: Env{Stderr: &complaint, Getenv: func(string) string { return "" }}}
		a.report(failed(c.err))
		head, hint, _ := strings.Cut(complaint.String(), "\n")
		if head == "" || !strings.Contains(hint, c.want) || c.want == "" && hint != "" {
			t.Errorf("%v: %q", c.err, &complaint)
		}
	}
	// A directory that cannot be read is one, too.
	var complaint bytes.Buffer
	a := &app{Env: Env{Stderr: &complaint, Getenv: func(string) string { return "" }}}
	a.tellErrors(&watch.Snapshot{Errors: []watch.EntryError{{Path: "/r", Err: fs.ErrPermission}}}, false, false)
	if !strings.Contains(complaint.String(), "a user who may read it") {
		t.Errorf("it says %q", &complaint)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"agent", "agent", 0}, {"alife", "alive", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
