package audit_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/adrg/xdg"
	"pgregory.net/rapid"

	"holdfast/fslock/audit"
)

func entry(id string) audit.Entry {
	return audit.Entry{Action: audit.ActionEpoch, Path: "/leases/" + id + ".lease.json", Kind: "lease", ID: id, Reason: "disk was full"}
}

func logIn(t *testing.T) *audit.Log {
	t.Helper()
	return &audit.Log{Path: filepath.Join(t.TempDir(), "state", "holdfast", "audit.jsonl")}
}

// ids reads the whole log: what its entries are about, and the numbers of the lines that are none.
func ids(t *testing.T, l *audit.Log) (ids []string, bad []int) {
	t.Helper()
	for e, err := range l.Entries() {
		if line, ok := errors.AsType[*audit.LineError](err); ok {
			bad = append(bad, line.Line)
			if line.Reason == "" || !strings.Contains(line.Error(), l.Path) {
				t.Errorf("a line without a reason or a path: %v", line)
			}
			continue
		}
		must(t, err)
		ids = append(ids, e.ID)
	}
	return ids, bad
}

func TestEntryComesBackAsItWas(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		l := &audit.Log{Path: filepath.Join(dir, strconv.Itoa(n))}
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "<&>\u2028", "\x00\n\"\\"}))
		raw := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 64), rapid.Map(text, func(s string) []byte { return []byte(s) }))
		want := audit.Entry{
			Time: time.UnixMilli(rapid.Int64Range(0, math.MaxInt32*1000).Draw(rt, "time")), Action: audit.ActionBreak,
			Path: "/nowhere/" + rapid.SampledFrom([]string{"x.lock", "b\xff.lock", "a\n.lock"}).Draw(rt, "path"),
			Kind: "lock", ID: rapid.SampledFrom([]string{"", "x", "\xfe"}).Draw(rt, "id"), Reason: text.Draw(rt, "reason"),
			Who:    audit.Who{UID: 1, User: text.Draw(rt, "user"), PID: 7, Host: "vm"},
			Before: raw.Draw(rt, "before"), Found: text.Draw(rt, "found"), Nonce: text.Draw(rt, "nonce"),
			EpochOld: rapid.Uint64().Draw(rt, "old"), EpochNew: rapid.Uint64().Draw(rt, "new"),
		}
		if err := l.Append(want); err != nil {
			rt.Fatal(err)
		}
		read := 0
		for got, err := range l.Entries() {
			if read++; err != nil {
				rt.Fatal(err)
			}
			// An empty file is not a missing one.
			if !bytes.Equal(got.Before, want.Before) || (got.Before == nil) != (want.Before == nil) {
				rt.Errorf("before: %q, want %q", got.Before, want.Before)
			}
			got.Before, want.Before = nil, nil
			if !slices.EqualFunc([]audit.Entry{got}, []audit.Entry{want}, same) {
				rt.Errorf("got %+v, want %+v", got, want)
			}
		}
		if read != 1 {
			rt.Errorf("%d entries", read)
		}
	})
}

func TestLargestRecordFits(t *testing.T) {
	l := logIn(t)
	for _, b := range []string{"\x00", "\xff", "<"} { // escaped with six bytes, in base 64, and as it is
		e := entry("x")
		e.Before = bytes.Repeat([]byte(b), 64<<10)
		must(t, l.Append(e))
	}
	read := 0
	for e, err := range l.Entries() {
		if read++; err != nil || len(e.Before) != 64<<10 {
			t.Errorf("entry %d: %d bytes, %v", read, len(e.Before), err)
		}
	}
	if read != 3 {
		t.Errorf("%d entries", read)
	}
}

func same(a, b audit.Entry) bool {
	return a.Time.Equal(b.Time) && a.Action == b.Action && a.Path == b.Path && a.Kind == b.Kind && a.ID == b.ID && a.Reason == b.Reason &&
		a.Who == b.Who && a.Found == b.Found && a.Nonce == b.Nonce && a.EpochOld == b.EpochOld && a.EpochNew == b.EpochNew
}

func TestWhoAndWhenAreFilledIn(t *testing.T) {
	l := logIn(t)
	before := time.Now().Add(-time.Millisecond)
	must(t, l.Append(entry("x")))
	host, _ := os.Hostname()
	for e, err := range l.Entries() {
		must(t, err)
		if e.Who.PID != os.Getpid() || e.Who.UID != os.Getuid() || e.Who.Host != host || e.Time.Before(before) || e.Time.After(time.Now()) {
			t.Errorf("%+v", e)
		}
	}
}

func TestLogThatIsNotThereIsEmpty(t *testing.T) {
	l := logIn(t)
	if got, bad := ids(t, l); got != nil || bad != nil {
		t.Error(got, bad)
	}
	if epoch, bad, err := l.Highest("/x"); epoch != 0 || bad != nil || err != nil {
		t.Error(epoch, bad, err)
	}
	if _, err := os.Stat(filepath.Dir(l.Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading made the directory: %v", err)
	}
}

func TestCrashInTheMiddleOfALine(t *testing.T) {
	l := logIn(t)
	must(t, l.Append(entry("a")))
	if err := child(t, l.Path, -1).Wait(); err == nil {
		t.Fatal("the child lived on")
	}
	if got, bad := ids(t, l); !slices.Equal(got, []string{"a"}) || !slices.Equal(bad, []int{2}) {
		t.Errorf("after the crash: %q, bad lines %v", got, bad)
	}
	must(t, l.Append(entry("b")))
	must(t, l.Append(entry("c")))
	if got, bad := ids(t, l); !slices.Equal(got, []string{"a", "b", "c"}) || !slices.Equal(bad, []int{2}) {
		t.Errorf("later: %q, bad lines %v", got, bad)
	}
	// Nothing but the line end is missing: the entry is whole.
	data, err := os.ReadFile(l.Path)
	must(t, err)
	must(t, os.WriteFile(l.Path, bytes.TrimSuffix(data, []byte("\n")), 0o600))
	must(t, l.Append(entry("d")))
	if got, bad := ids(t, l); !slices.Equal(got, []string{"a", "b", "c", "d"}) || !slices.Equal(bad, []int{2}) {
		t.Errorf("at the end: %q, bad lines %v", got, bad)
	}
}

func TestFullDisk(t *testing.T) {
	l := logIn(t)
	must(t, l.Append(entry("a")))
	if err := audit.FailingLog(l.Path, syscall.ENOSPC).Append(entry("b")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, l.Append(entry("c")))
	if got, bad := ids(t, l); !slices.Equal(got, []string{"a", "c"}) || !slices.Equal(bad, []int{2}) {
		t.Errorf("%q, bad lines %v", got, bad)
	}
}

func TestForeignLinesHideNothing(t *testing.T) {
	l := logIn(t)
	must(t, l.Append(entry("a")))
	f, err := os.OpenFile(l.Path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	for _, line := range []string{
		"\n", "hello\n", "[]\n", "{}\n", `{"action":"epoch","path":7}` + "\n", `{"action":"epoch"}` + "\n", `{"action":"x","path":"/x"} more` + "\n",
		`{"action":"x","path":"/x","before_b64":"?"}` + "\n", `{"action":"x","path":"/x","path_b64":"?"}` + "\n",
		strings.Repeat("x", 3*audit.MaxLine) + "\n", strings.Repeat("\x00", 10) + "\n",
		`{"schema":9,"action":"later","path":"/x","id":"b","unknown":[1]}` + "\n", strings.Repeat("y", 2*audit.MaxLine),
	} {
		_, err := f.WriteString(line)
		must(t, err)
	}
	must(t, f.Close())
	must(t, l.Append(entry("c")))
	got, bad := ids(t, l)
	if !slices.Equal(got, []string{"a", "b", "c"}) || !slices.Equal(bad, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14}) {
		t.Errorf("%q, bad lines %v", got, bad)
	}
	if _, bad, err := l.Highest("/x"); len(bad) != 11 || err != nil {
		t.Errorf("%d bad lines, %v", len(bad), err)
	}
	for e, err := range l.Entries() { // whoever has seen enough may stop
		if e.ID != "a" || err != nil {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
}

func TestReadingEndsThoughOthersAppend(t *testing.T) {
	l := logIn(t)
	must(t, l.Append(entry("a")))
	must(t, l.Append(entry("b")))
	n := 0
	for _, err := range l.Entries() {
		must(t, err)
		if n++; n > 2 {
			t.Fatal("it reads what was appended after it began")
		}
		for range 200 { // more than is read at once
			e := entry("later")
			e.Reason = strings.Repeat("r", 9000)
			must(t, l.Append(e))
		}
	}
}

func TestAppendersFromSeveralProcessesDoNotMix(t *testing.T) {
	const processes, each = 6, 40
	l := logIn(t)
	killed := child(t, l.Path, 1<<20)
	for got := []string(nil); len(got) < 3; got, _ = ids(t, l) { // it is at work
		if t.Context().Err() != nil {
			t.Fatal("the child never wrote")
		}
	}
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	before, torn := ids(t, l)
	if len(torn) > 1 {
		t.Fatalf("one crash left %d bad lines", len(torn))
	}
	var all []interface{ Wait() error }
	for range processes {
		all = append(all, child(t, l.Path, each))
	}
	for _, c := range all {
		must(t, c.Wait())
	}
	after, bad := ids(t, l)
	if len(after) != len(before)+processes*each || !slices.Equal(bad, torn) {
		t.Errorf("%d entries, want %d; bad lines %v, were %v", len(after), len(before)+processes*each, bad, torn)
	}
	next := map[int]int{}
	n := 0
	for e, err := range l.Entries() {
		if n++; err != nil || n <= len(before)+len(torn) {
			continue
		}
		if e.ID != strconv.Itoa(next[e.Who.PID]) {
			t.Fatalf("pid %d wrote entry %s after %d others", e.Who.PID, e.ID, next[e.Who.PID])
		}
		next[e.Who.PID]++
	}
}

func TestBusyLogIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logIn(t)
		must(t, l.Append(entry("a")))
		leave, err := audit.Guard(l.Path)
		must(t, err)
		began := time.Now()
		err = l.Append(entry("b"))
		if took := time.Since(began); !errors.Is(err, audit.ErrBusy) || took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		leave()
		must(t, l.Append(entry("c")))
		if got, bad := ids(t, l); !slices.Equal(got, []string{"a", "c"}) || bad != nil {
			t.Errorf("%q, bad lines %v", got, bad)
		}
	})
}

func TestEntryThatIsNone(t *testing.T) {
	l := logIn(t)
	tooLarge := entry("x")
	tooLarge.Before = make([]byte, audit.MaxLine/2) // NULs, which JSON writes with six bytes
	if err := l.Append(tooLarge); !errors.Is(err, audit.ErrTooLarge) {
		t.Error(err)
	}
	for _, e := range []audit.Entry{{}, {Action: "epoch"}, {Path: "/x"}} {
		if err := l.Append(e); err == nil || !strings.Contains(err.Error(), l.Path) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := os.Lstat(l.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was written")
	}
}

func TestStateDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	l := &audit.Log{Path: filepath.Join(file, "holdfast", "audit.jsonl")}
	if err := l.Append(entry("x")); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestDefaultPlace(t *testing.T) {
	t.Cleanup(xdg.Reload) // after the variable is back
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	xdg.Reload()
	want := filepath.Join(dir, "holdfast", "audit.jsonl")
	if got, err := (*audit.Log)(nil).File(); got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	must(t, (&audit.Log{}).Append(entry("x")))
	if _, err := os.Stat(want); err != nil {
		t.Error(err)
	}
}

func TestHighestEpochOfALease(t *testing.T) {
	l := logIn(t)
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	must(t, os.Mkdir(real, 0o700))
	for _, e := range []struct {
		name     string
		old, new uint64
	}{{"x", 3, 9}, {"x", 9, 2}, {"y", 70, 0}} {
		must(t, l.Append(audit.Entry{Action: audit.ActionEpoch, Path: filepath.Join(real, e.name), EpochOld: e.old, EpochNew: e.new}))
	}
	check := func(path string, want uint64) {
		t.Helper()
		if got, bad, err := l.Highest(path); got != want || bad != nil || err != nil {
			t.Errorf("%s: %d, want %d (%v, %v)", path, got, want, bad, err)
		}
	}
	check(filepath.Join(real, "x"), 9)
	check(filepath.Join(real, "y"), 70)
	check(filepath.Join(real, "z"), 0)
	t.Chdir(dir)
	check(filepath.Join("real", "x"), 9)
	check(filepath.Join("nowhere", "x"), 0)
	if err := os.Symlink(real, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	check(filepath.Join(dir, "link", "x"), 9) // the same lease by another way
}

// A break that fails after its entry is none: it is neither the last that can be undone nor tells of an epoch.
func TestWhatFailedWasNotDone(t *testing.T) {
	log := &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}
	done := audit.Entry{Action: audit.ActionBreak, Kind: "lease", Path: "/x", Nonce: "a", EpochOld: 3}
	failed := audit.Entry{Action: audit.ActionEpoch, Kind: "lease", Path: "/x", Nonce: "b", EpochNew: 20}
	other := audit.Entry{Action: audit.ActionBreak, Kind: "lease", Path: "/y", Nonce: "c", EpochOld: 7}
	for _, e := range []audit.Entry{done, failed, other} {
		if err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Failed(failed, errors.New("the disk is full")); err != nil {
		t.Fatal(err)
	}
	last, ok, err := log.LastAct("/x")
	if err != nil || !ok || last.Nonce != "a" {
		t.Errorf("last of /x: %+v, %v, %v", last, ok, err)
	}
	if epoch, _, err := log.Highest("/x"); epoch != 3 || err != nil {
		t.Errorf("highest of /x: %d, %v", epoch, err)
	}
	if last, ok, err := log.LastAct("/y"); err != nil || !ok || last.Nonce != "c" {
		t.Errorf("last of /y: %+v, %v, %v", last, ok, err)
	}
	if epoch, _, err := log.Highest("/y"); epoch != 7 || err != nil {
		t.Errorf("highest of /y: %d, %v", epoch, err)
	}
}

// Of two people who undo the same break, the second finds that it was undone, whatever has become of the lock since.
func TestBreakStandsUntilItIsUndone(t *testing.T) {
	log := &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}
	at := time.Now().Truncate(time.Millisecond)
	broken := audit.Entry{Action: audit.ActionBreak, Kind: "lock", Path: "/x", Nonce: "a", Time: at}
	stands := func(want bool) {
		t.Helper()
		if got, err := log.Stands(broken); got != want || err != nil {
			t.Errorf("it stands: %v, %v", got, err)
		}
	}
	add := func(e audit.Entry) {
		t.Helper()
		if err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	stands(true) // another log has it
	add(broken)
	stands(true)
	add(audit.Entry{Action: audit.ActionToken, Kind: "token", Path: "/x", Time: at.Add(time.Second)})
	stands(true)
	undo := audit.Entry{Action: audit.ActionUndo, Kind: "lock", Path: "/x", Nonce: "a", Time: at.Add(2 * time.Second)}
	add(undo)
	stands(true) // its writer may have died before it did so
	if err := log.Failed(undo, errors.New("the disk is full")); err != nil {
		t.Fatal(err)
	}
	stands(true)
	add(undo)
	if err := log.Done(undo); err != nil {
		t.Fatal(err)
	}
	stands(false)
	add(audit.Entry{Action: audit.ActionBreak, Kind: "lock", Path: "/x", Nonce: "a", Time: at.Add(3 * time.Second)})
	stands(false)
}
