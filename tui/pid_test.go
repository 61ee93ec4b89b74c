package tui

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// A sandboxed holder records itself as pid 1: whoever acts on that number here acts on another process.
func TestASandboxedHolderIsNamedByThePidThatItHasHere(t *testing.T) {
	w := &world{at: noon}
	boxed := alive(3050)
	boxed.Condition = proc.Stopped
	w.lock("boxed.lock", "", 4*time.Second, boxed, func(f *verdict.LockFacts) { f.Record.PID = 1 })
	s := w.snapshot()
	e := s.Entries[0]
	if got := Headline(text.Style{}, s.Stuck(), "", 0); !strings.Contains(got, "pid 3050 is stopped") {
		t.Errorf("the headline: %q", got)
	}
	if got := ColPID.Cell(text.Style{}, e, e.Verdict, noon); got != "3050" {
		t.Errorf("the column: %q", got)
	}
	d := sit(t, screenFor(), 140, 40)
	d.see(&watch.Snapshot{Time: noon, Roots: s.Roots, Observer: s.Observer})
	d.tellAt(delivery{snapshot: s, changes: []watch.Change{{
		Time: noon, Event: watch.Renewed, Kind: e.Kind, Root: e.Root, Path: e.Path, To: e.Verdict.State, Holder: e.Holder(), PID: e.PID(), Entry: e,
	}}}, noon)
	d.wants("renewed boxed.lock pid 3050")
	d.press("/")
	for _, key := range "pid:3050" {
		d.press(string(key))
	}
	d.wants("boxed.lock")
	for _, c := range watch.Diff(nil, s) {
		if c.PID != 3050 {
			t.Errorf("the change: %+v", c)
		}
	}
}

func TestWhatTheSystemSaidComesFirst(t *testing.T) {
	err := fmt.Errorf("break /a: %w", &fs.PathError{Op: "open", Path: "/a/b", Err: syscall.EROFS})
	if got, want := causeFirst(err), syscall.EROFS.Error()+": break /a: "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q", got)
	}
	if got := causeFirst(errors.New("x")); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestAMissingRootIsNoGoodNews(t *testing.T) {
	missing := watch.Root{Path: "/typo", Kind: "missing", ChosenBy: "argument", Watch: "none"}
	for _, c := range []struct {
		want  string
		roots []watch.Root
	}{
		{"Nothing is there yet: 1 root missing.", []watch.Root{missing}},
		{"Nothing is stuck in what is there; 1 root missing.", []watch.Root{missing, {Path: "/r", Kind: "plain", Watch: "inotify"}}},
		{"Nothing is stuck.", []watch.Root{{Path: "/home/x", Kind: "missing", ChosenBy: "default", Watch: "none"}}},
	} {
		d := sit(t, screenFor(), 80, 24)
		d.see(&watch.Snapshot{Time: noon, Roots: c.roots})
		d.wants(c.want)
	}
}
