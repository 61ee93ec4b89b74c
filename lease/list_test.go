package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestListHasEveryIDWithItsOwnReason(t *testing.T) {
	s := store(t)
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(s.Dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		id := fmt.Sprintf("many-%03d", i)
		write(id+leaseSuffix, recorded(s, 3*sec, func(r *record.Lease) { r.InstanceID = id }).Encode())
	}
	write("z-dead"+leaseSuffix, recorded(s, 3*sec, byPID(deadPID)).Encode())
	write("a-torn"+leaseSuffix, []byte("{"))
	write("a"+sectionSuffix, nil) // its files come after those of a-torn
	write("a"+counterSuffix, []byte("1\n"))
	write("b-counter-only"+counterSuffix, []byte("7\n"))
	write("c-bad-counter"+counterSuffix, []byte("x"))
	write("con"+leaseSuffix, []byte("{"))
	write(".hidden"+leaseSuffix, []byte("{"))
	write(".registry-tmp-AbCdEf.json", []byte("{"))
	write("notes.txt", nil)
	if err := os.Mkdir(s.path("d-directory", leaseSuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	var infos []Info
	writesNothing(t, s.Dir, func() {
		var err error
		if infos, err = s.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	var ids []string
	states := map[string]verdict.State{}
	for _, info := range infos {
		ids = append(ids, info.ID)
		states[info.ID] = info.Verdict.State
		alone, err := s.Inspect(info.ID)
		if info.ID == "con" {
			// It cannot be asked for, and must not hide.
			if !errors.Is(err, ErrBadID) {
				t.Errorf("con: %v", err)
			}
			continue
		}
		if err != nil || alone.Verdict.State != info.Verdict.State || alone.Epoch != info.Epoch || alone.Path != info.Path {
			t.Errorf("%s: alone %v, in the list %v (%v)", info.ID, alone.Verdict.State, info.Verdict.State, err)
		}
	}
	if len(ids) != 308 || !slices.IsSorted(ids) {
		t.Fatalf("%d ids, sorted %v", len(ids), slices.IsSorted(ids))
	}
	for id, state := range map[string]verdict.State{
		agent: verdict.Free, "many-000": verdict.Live, "many-299": verdict.Live, "z-dead": verdict.Dead, "a-torn": verdict.Unreadable,
		"b-counter-only": verdict.Free, "c-bad-counter": verdict.Free, "d-directory": verdict.Unreadable, "con": verdict.Unreadable,
	} {
		if got, ok := states[id]; !ok || got != state {
			t.Errorf("%s is %v", id, got)
		}
	}
	for _, info := range infos {
		if want := map[string]uint64{"many-000": 5, "b-counter-only": 7, "c-bad-counter": 0}[info.ID]; want != 0 && info.Epoch != want {
			t.Errorf("%s: epoch %d", info.ID, info.Epoch)
		}
	}
}

func TestLeaseWhoseIDIsRefusedHere(t *testing.T) {
	for _, id := range []string{"NUL", `a\b`, "a\x1b[2J", strings.Repeat("x", 201)} {
		s := store(t)
		r := recorded(s, 3*sec, byPID(deadPID))
		if err := os.WriteFile(s.path(id, leaseSuffix), r.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := s.Look(id)
		v := info.Verdict
		if err != nil || v.State != verdict.Dead || v.Claimable.When != verdict.Blocked || !strings.Contains(v.Claimable.By, "its id") ||
			v.Originals[0].Does != "takes it" {
			t.Errorf("%q: %+v (%v)", id, v, err)
		}
		if _, err := s.Inspect(id); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := store(t).Look("../x"); !errors.Is(err, ErrBadID) {
		t.Errorf("it looked outside its directory: %v", err)
	}
}

func TestListEndsWithItsContext(t *testing.T) {
	s := store(t)
	putLease(t, s, 3*sec)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if infos, err := s.List(ctx); !errors.Is(err, context.Canceled) || infos != nil {
		t.Errorf("listed %d (%v)", len(infos), err)
	}
}

func TestListOfWhatIsNoDirectory(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "file")}
	if err := os.WriteFile(s.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.List(t.Context())
	if e, ok := errors.AsType[*IOError](err); !ok || e.Op != "list" || !strings.Contains(err.Error(), s.Dir) {
		t.Errorf("listed: %v", err)
	}
	info, err := s.Inspect(agent)
	if err != nil || info.Verdict.State != verdict.Unreadable || info.Verdict.Cause != string(record.Denied) {
		t.Errorf("inspected as %v %s (%v)", info.Verdict.State, info.Verdict.Cause, err)
	}
}

func TestZeroStoreHasTheOriginalsTimes(t *testing.T) {
	s := &Store{}
	if s.ttl() != 15*sec || s.interval() != 5*sec {
		t.Errorf("TTL %v, interval %v", s.ttl(), s.interval())
	}
	if s.table() != proc.Local() || s.bootClock() <= 0 || s.log() == nil {
		t.Error("the zero store knows no machine, no clock or no log")
	}
	for _, tc := range []struct{ ttl, interval, want time.Duration }{
		{60 * sec, 0, 20 * sec},
		{60 * sec, 30 * sec, 30 * sec},
		{60 * sec, 31 * sec, 20 * sec}, // one renewal that fails would be the end
		{60 * sec, -1, 20 * sec},
		{60 * sec, 1, 1},
	} {
		s := &Store{TTL: tc.ttl, Interval: tc.interval}
		if got := s.interval(); got != tc.want {
			t.Errorf("TTL %v, interval %v: renews every %v", tc.ttl, tc.interval, got)
		}
	}
}

func TestErrorsTellWhatAPersonNeeds(t *testing.T) {
	inside := func(holders ...proc.FlockHolder) *BusyError {
		return &BusyError{Op: "claim", ID: agent, Path: "/l/agent-1.lock", Waited: 1234 * time.Millisecond, Holders: holders, Err: context.DeadlineExceeded}
	}
	mux := proc.FlockHolder{Process: proc.Process{PID: 42, Name: "mux"}}
	stopped := mux
	stopped.Stopped = true
	waiting := mux
	waiting.Waiting = true
	left := inside(waiting)
	left.Complete = true
	for want, err := range map[string]error{
		"claim lease agent-1: critical section /l/agent-1.lock is busy for 1.23s: inside is pid 42 (mux)": inside(mux),
		"claim lease agent-1: critical section /l/agent-1.lock is busy for 1.23s: inside is pid 42 (mux), which is stopped; `kill -CONT 42` lets it go on": inside(
			stopped, waiting),
		"claim lease agent-1: critical section /l/agent-1.lock is busy for 1.23s: who is inside cannot be seen from here": inside(waiting),
		"claim lease agent-1: critical section /l/agent-1.lock is busy for 1.23s: whoever was inside has left":            left,
		"list leases in /l: no": &IOError{Op: "list", Path: "/l", Err: errors.New("no")},
		"claim lease agent-1: /l/agent-1.epoch: lost; `holdfast epoch agent-1` shows and repairs it":            &EpochError{Op: "claim", ID: agent, Path: "/l/agent-1.epoch", Reason: "lost"},
		`claim lease "a/b": not a lease id: it has a path separator; ids are 1 to 200 bytes without separators`: checkID("claim", "a/b"),
	} {
		if err.Error() != want {
			t.Errorf("says %q,\nwant %q", err, want)
		}
	}
	if err := error(inside()); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a busy section is neither busy nor late")
	}
}

// Of a lease that was looked at before, the counter is read again when it may be another one, and only then.
func TestCounterThatIsKnownIsReadAgainOnlyWhenItChanged(t *testing.T) {
	s := store(t)
	path := s.path("a", counterSuffix)
	write := func(data string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var known *verdict.LeaseFacts
	look := func() (c verdict.Counter) {
		t.Helper()
		err := s.InspectEach(t.Context(), []string{"a"}, Each{
			Tell:  func(_ int, info Info) { c = info.Facts.Counter; known = info.Facts },
			Known: func(int) *verdict.LeaseFacts { return known },
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write("7\n")
	time.Sleep(150 * time.Millisecond) // a stamp as new as the look is worth nothing
	look()
	known.Counter.Value = 70 // as nobody wrote it
	if c := look(); c.Value != 70 {
		t.Errorf("an unchanged one was read again: %d", c.Value)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	write("8\n") // of the same size
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if c := look(); c.Value != 8 {
		t.Errorf("a changed one is %d", c.Value)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := look(); !c.Missing {
		t.Errorf("one that went is %+v", c)
	}
	write("9\n")
	if c := look(); c.Value != 9 || c.Missing {
		t.Errorf("one that came is %+v", c)
	}
	// What could not be read has no stamp, as what is not there.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	known.Counter = verdict.Counter{Path: path, Problem: &record.Error{Op: "open", Path: path, Problem: record.Denied}}
	if c := look(); !c.Missing || c.Problem != nil {
		t.Errorf("one that could not be read and went is %+v", c)
	}
}
