package lease

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// restored checks that a lease comes back byte by byte, and that the audit log says so.
func restored(tb testing.TB, s *Store, e audit.Entry, log *audit.Log) {
	tb.Helper()
	before := len(audited(tb, log))
	if err := s.Restore(tb.Context(), e, Removal{Reason: "wrong one", Log: log}); err != nil {
		tb.Fatal(err)
	}
	path := s.path(agent, leaseSuffix)
	now, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(now, e.Before) {
		tb.Errorf("now %q, was %q (%v)", now, e.Before, err)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode() != 0o600 {
		tb.Errorf("mode %v (%v)", st.Mode(), err)
	}
	all := audited(tb, log)
	if len(all) != before+1 {
		tb.Fatalf("%d entries, %d before", len(all), before)
	}
	u := all[before]
	if u.Action != audit.ActionUndo || u.Kind != "lease" || u.ID != agent || u.Path != audit.Canonical(path) || u.Reason != "wrong one" ||
		u.Before != nil || u.Nonce != e.Nonce {
		tb.Errorf("entry %+v", u)
	}
	names, err := os.ReadDir(s.Dir)
	if err != nil || slices.ContainsFunc(namesOf(names), func(name string) bool { return strings.HasPrefix(name, ".") }) {
		tb.Errorf("files %q (%v)", namesOf(names), err)
	}
}

// notRestored checks that nothing comes back, and returns what the person is told.
func notRestored(tb testing.TB, s *Store, e audit.Entry, log *audit.Log, sentinel string) string {
	tb.Helper()
	before := len(audited(tb, log))
	var err error
	writesNothing(tb, s.Dir, func() { err = s.Restore(tb.Context(), e, Removal{Reason: "wrong one", Force: true, Log: log}) })
	if got := is(err); !slices.Equal(got, []string{sentinel}) || !strings.HasPrefix(err.Error(), "put back lease ") {
		tb.Fatalf("refused as %q, want %q: %v", got, sentinel, err)
	}
	if after := len(audited(tb, log)); after != before {
		tb.Errorf("%d entries, %d before", after, before)
	}
	return err.Error()
}

func TestBrokenLeaseIsPutBack(t *testing.T) {
	for name, plants := range map[string]func(s *Store){
		"live":     func(s *Store) { putLease(t, s, sec) },
		"dead":     func(s *Store) { putLease(t, s, sec, byPID(deadPID)) },
		"of July":  func(s *Store) { putLease(t, s, sec, julyFormat) },
		"of ours":  func(s *Store) { putLease(t, s, sec, asOurs) },
		"no epoch": func(s *Store) { putLease(t, s, sec, withEpoch(0)) },
		"with what nobody knows": func(s *Store) {
			r := recorded(s, sec)
			data := bytes.Replace(r.Encode(), []byte("{\n"), []byte("{\"note\":  [1.50],\r\n\t"), 1)
			put(t, s, leaseSuffix, data, sec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			var out logged
			plants(s)
			was := look(t, s).Verdict.State
			e := broke(t, s, look(t, s), forced(log))
			s.Log = out.logger()
			last, ok, err := log.LastAct(s.path(agent, leaseSuffix))
			if err != nil || !ok {
				t.Fatal(err)
			}
			restored(t, s, last, log)
			if info := look(t, s); info.Verdict.State != was || info.Facts.Record.ClaimID != e.Nonce {
				t.Errorf("%v, was %v", info.Verdict.State, was)
			}
			if got := out.lines(); len(got) != 1 || !strings.HasPrefix(got[0], `level=WARN msg="put lease back" id=agent-1 pid=`) {
				t.Errorf("logged %q", got)
			}
			notRestored(t, s, e, log, "changed")
		})
	}
}

func TestHolderWhoseLeaseIsPutBackGoesOn(t *testing.T) {
	s, log := store(t), auditLog(t)
	l := granted(t, s, sameOwner("block-1"), 1)
	e := broke(t, s, look(t, s), forced(log))
	restored(t, s, e, log)
	mine(t, l)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	granted(t, s, other("owner-b"), 2)
}

func TestLeaseThatIsNotPutBack(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(s *Store) // after the removal
		says    string
	}{
		"it was claimed since": {func(s *Store) { granted(t, s, other("owner-b"), 6) }, "there is a lease; it now names pid 1000"},
		"it was claimed and released since": {func(s *Store) {
			if err := granted(t, s, other("owner-b"), 6).Release(); err != nil {
				t.Fatal(err)
			}
		}, "its epoch was 5 and the counter is at 6, so it may have been granted since"},
		"a claimant has counted":     {func(s *Store) { putCounter(t, s, "6\n") }, "the counter is at 6"},
		"the counter was set back":   {func(s *Store) { putCounter(t, s, "4\n") }, "the counter is at 4"},
		"the counter is gone":        {func(s *Store) { _ = os.Remove(s.path(agent, counterSuffix)) }, "the counter is at 0"},
		"the counter is damaged":     {func(s *Store) { putCounter(t, s, "5 x") }, "its epoch counter is damaged ("},
		"there is one of its claim":  {func(s *Store) { putLease(t, s, sec) }, "there is a lease"},
		"there is one nobody reads":  {func(s *Store) { put(t, s, leaseSuffix, []byte("{"), time.Hour) }, "there is a lease"},
		"there is a directory of it": {func(s *Store) { _ = os.Mkdir(s.path(agent, leaseSuffix), 0o700) }, "there is a lease"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			putLease(t, s, sec)
			e := broke(t, s, look(t, s), forced(log))
			tc.happens(s)
			if says := notRestored(t, s, e, log, "changed"); !strings.Contains(says, tc.says) {
				t.Error(says)
			}
		})
	}
	t.Run("an old build's, and the first epoch was given out", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec, julyFormat)
		e := broke(t, s, look(t, s), forced(log))
		if err := granted(t, s, other("owner-b"), 1).Release(); err != nil {
			t.Fatal(err)
		}
		if says := notRestored(t, s, e, log, "changed"); !strings.Contains(says, "its epoch was 0 and the counter is at 1") {
			t.Error(says)
		}
	})
}

func TestEntryThatTellsOfSomethingElse(t *testing.T) {
	s, log := store(t), auditLog(t)
	putLease(t, s, sec)
	e := broke(t, s, look(t, s), forced(log))
	with := func(change func(*audit.Entry)) audit.Entry { other := e; change(&other); return other }
	for name, tc := range map[string]struct {
		entry    audit.Entry
		sentinel string
	}{
		"another action":        {with(func(e *audit.Entry) { e.Action = audit.ActionEpoch }), "changed"},
		"an undo":               {with(func(e *audit.Entry) { e.Action = audit.ActionUndo }), "changed"},
		"a lock":                {with(func(e *audit.Entry) { e.Kind = "lock" }), "changed"},
		"another directory":     {with(func(e *audit.Entry) { e.Path = "/elsewhere/agent-1.lease.json" }), "changed"},
		"another id":            {with(func(e *audit.Entry) { e.ID = "agent-2" }), "changed"},
		"no id":                 {with(func(e *audit.Entry) { e.ID = "" }), "bad id"},
		"an id that leads away": {with(func(e *audit.Entry) { e.ID = "../agent-1" }), "bad id"},
		"torn bytes":            {with(func(e *audit.Entry) { e.Before = e.Before[:40] }), "unreadable"},
		"no bytes":              {with(func(e *audit.Entry) { e.Before = nil }), "unreadable"},
		"too many bytes": {with(func(e *audit.Entry) {
			e.Before = slices.Concat(e.Before, bytes.Repeat([]byte(" "), record.MaxSize))
		}), "unreadable"},
		"nothing": {audit.Entry{}, "bad id"},
	} {
		t.Run(name, func(t *testing.T) { notRestored(t, s, tc.entry, log, tc.sentinel) })
	}
	notRestored(t, &Store{Dir: s.Dir, ReadOnly: true}, e, log, "read-only")
	gone := &Store{Dir: filepath.Join(s.Dir, "gone"), Table: s.Table}
	if err := gone.Restore(t.Context(), with(func(e *audit.Entry) { e.Path = gone.path(agent, leaseSuffix) }), Removal{Log: log}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	restored(t, s, e, log)
}

func TestRestoreMeetsOthers(t *testing.T) {
	t.Run("another of its kind", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec)
		e := broke(t, s, look(t, s), forced(log))
		var all [4]<-chan error
		for i := range all {
			all[i] = meanwhile(func() error { return s.Restore(t.Context(), e, Removal{Log: log}) })
		}
		winners := 0
		for _, done := range all {
			if err := <-done; err == nil {
				winners++
			} else if !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
		}
		if winners != 1 {
			t.Errorf("%d have put it back", winners)
		}
	})
	t.Run("a claim that comes in the middle", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec)
		e := broke(t, s, look(t, s), forced(log))
		claims := &Store{Dir: s.Dir, Table: s.Table}
		reached, goOn := paused(s, "audited")
		done := meanwhile(func() error { return s.Restore(t.Context(), e, Removal{Log: log}) })
		<-reached
		claimed := meanwhile(func() error { _, err := claims.Claim(t.Context(), agent, other("owner-b")); return err })
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-claimed; !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
	})
	t.Run("a program that takes no flock", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec)
		e := broke(t, s, look(t, s), forced(log))
		s.fault = func(step string) error {
			if step == "audited" {
				putLease(t, s, sec, func(r *record.Lease) { r.OwnerBootID, r.ClaimID = "owner-b", "claim-b" })
			}
			return nil
		}
		err := s.Restore(t.Context(), e, Removal{Log: log})
		c, ok := errors.AsType[*ConflictError](err)
		if !ok || !errors.Is(err, ErrChanged) || c.Holder == nil || c.Holder.ClaimID != "claim-b" || c.Reason != "there is a lease" {
			t.Error(err)
		}
		info := inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 14 * sec})
		if info.Facts.Record.ClaimID != "claim-b" {
			t.Error("another's lease was replaced")
		}
		if names, err := os.ReadDir(s.Dir); err != nil || len(names) != 3 {
			t.Errorf("files %q (%v)", namesOf(names), err)
		}
	})
	t.Run("a directory that went", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec)
		e := broke(t, s, look(t, s), forced(log))
		s.fault = func(step string) error {
			if step == "audited" {
				return os.RemoveAll(s.Dir)
			}
			return nil
		}
		err := s.Restore(t.Context(), e, Removal{Log: log})
		if i, ok := errors.AsType[*IOError](err); !ok || i.Op != "put back" || !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

// The holder whose lease was put back has released it: the same entry would give it back to nobody, against nobody's will.
func TestLeaseIsPutBackOnce(t *testing.T) {
	s, log := store(t), auditLog(t)
	putLease(t, s, sec)
	e := broke(t, s, look(t, s), forced(log))
	restored(t, s, e, log)
	if err := os.Remove(s.path(agent, leaseSuffix)); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(t.Context(), e, Removal{Log: log}); !errors.Is(err, ErrChanged) {
		t.Errorf("put back once more: %v", err)
	}
	inspect(t, s, want{state: verdict.Free, when: verdict.Now})
}
