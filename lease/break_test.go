package lease

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
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

// look is what a person has seen before a removal.
func look(tb testing.TB, s *Store) Info {
	tb.Helper()
	info, err := s.Inspect(agent)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

func forced(log *audit.Log) Removal { return Removal{Reason: "relay is stuck", Force: true, Log: log} }

// broke checks that a removal succeeds, that the audit log has what was removed, and returns the entry.
func broke(tb testing.TB, s *Store, info Info, r Removal) audit.Entry {
	tb.Helper()
	path := s.path(agent, leaseSuffix)
	was, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	before := len(audited(tb, r.Log))
	if err := s.Break(tb.Context(), info, r); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		tb.Errorf("the lease is still there (%v)", err)
	}
	all := audited(tb, r.Log)
	if len(all) != before+1 {
		tb.Fatalf("%d entries, %d before", len(all), before)
	}
	e := all[before]
	if e.Action != audit.ActionBreak || e.Kind != "lease" || e.ID != agent || e.Path != audit.Canonical(path) || e.Reason != r.Reason ||
		!bytes.Equal(e.Before, was) || e.Before == nil || e.Found != "" || e.EpochNew != 0 || e.Who.PID != os.Getpid() {
		tb.Errorf("entry %+v of\n%s", e, was)
	}
	return e
}

// unbroken checks that a removal is refused with exactly these sentinels, that nothing was changed and that the audit
// log tells of nothing.
func unbroken(tb testing.TB, s *Store, info Info, r Removal, sentinels ...string) {
	tb.Helper()
	_ = refusedBreak(tb, s, info, r, sentinels...)
}

// refusedBreak is unbroken, and returns the error.
func refusedBreak(tb testing.TB, s *Store, info Info, r Removal, sentinels ...string) error {
	tb.Helper()
	before := len(audited(tb, r.Log))
	var err error
	writesNothing(tb, s.Dir, func() { err = s.Break(tb.Context(), info, r) })
	if got := is(err); !slices.Equal(got, sentinels) || !strings.HasPrefix(err.Error(), "break lease ") {
		tb.Errorf("refused as %q, want %q: %v", got, sentinels, err)
	}
	if after := len(audited(tb, r.Log)); after != before {
		tb.Errorf("%d entries, %d before", after, before)
	}
	return err
}

func TestBreakOfWhatAnyClaimantWouldBeGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		plants func(s *Store)
		nonce  string
		epoch  uint64 // in the log
		line   string
	}{
		"dead":          {func(s *Store) { putLease(t, s, sec, byPID(deadPID)) }, "claim-a", 5, "state=dead forced=false pid=999999 epoch=5"},
		"expired":       {func(s *Store) { putLease(t, s, 16*sec) }, "claim-a", 5, "state=expired forced=false pid=4242 epoch=5"},
		"of July":       {func(s *Store) { putLease(t, s, 16*sec, julyFormat) }, "", 4, "state=expired forced=false pid=4242 epoch=0"},
		"torn":          {func(s *Store) { put(t, s, leaseSuffix, []byte(`{"pid`), 16*sec) }, "", 4, "state=unreadable forced=false"},
		"empty":         {func(s *Store) { put(t, s, leaseSuffix, nil, 16*sec) }, "", 4, "state=unreadable forced=false"},
		"no text":       {func(s *Store) { put(t, s, leaseSuffix, []byte("\xff\x00"), 16*sec) }, "", 4, "state=unreadable forced=false"},
		"epoch, behind": {func(s *Store) { putLease(t, s, 16*sec, withEpoch(3)) }, "claim-a", 4, "state=expired forced=false pid=4242 epoch=3"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			var out logged
			s.Log = out.logger()
			putCounter(t, s, "4\n")
			tc.plants(s)
			e := broke(t, s, look(t, s), Removal{Log: log})
			if e.Nonce != tc.nonce || e.EpochOld != tc.epoch {
				t.Errorf("nonce %q, epoch %d", e.Nonce, e.EpochOld)
			}
			if got := out.lines(); !slices.Equal(got, []string{`level=WARN msg="broke lease" id=agent-1 ` + tc.line}) {
				t.Errorf("logged %q", got)
			}
			inspect(t, s, want{state: verdict.Free, when: verdict.Now})
			granted(t, s, other("owner-b"), tc.epoch+1)
		})
	}
}

func TestBreakOfWhatIsHeldWantsForceAndAReason(t *testing.T) {
	for name, tc := range map[string]struct {
		counter string
		plants  func(s *Store)
		state   verdict.State
		holder  bool
	}{
		"live":                    {"5\n", func(s *Store) { putLease(t, s, sec) }, verdict.Live, true},
		"late":                    {"5\n", func(s *Store) { putLease(t, s, 9*sec) }, verdict.Late, true},
		"remote":                  {"5\n", func(s *Store) { putLease(t, s, sec, onHost("web02")) }, verdict.Remote, true},
		"of the future":           {"5\n", func(s *Store) { putLease(t, s, -time.Hour) }, verdict.Live, true},
		"torn just now":           {"5\n", func(s *Store) { put(t, s, leaseSuffix, []byte("{"), sec) }, verdict.Unreadable, false},
		"dead, counter damaged":   {"x", func(s *Store) { putLease(t, s, sec, byPID(deadPID), withEpoch(0)) }, verdict.Dead, true},
		"torn, counter damaged":   {"x", func(s *Store) { put(t, s, leaseSuffix, []byte("{"), time.Hour) }, verdict.Unreadable, false},
		"expired, counter at end": {"18446744073709551615\n", func(s *Store) { putLease(t, s, time.Hour) }, verdict.Expired, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			putCounter(t, s, tc.counter)
			tc.plants(s)
			info := look(t, s)
			err := refusedBreak(t, s, info, Removal{Reason: "why", Log: log}, "not yet")
			e, ok := errors.AsType[*ConflictError](err)
			if !ok || e.Op != "break" || e.Verdict.State != tc.state || (e.Holder != nil) != tc.holder || e.Path != s.path(agent, leaseSuffix) {
				t.Errorf("%+v", e)
			}
			if !strings.Contains(err.Error(), e.Verdict.Sentence) {
				t.Errorf("it does not say why: %v", err)
			}
			for _, reason := range []string{"", " \n"} {
				unbroken(t, s, info, Removal{Reason: reason, Force: true, Log: log}, "no reason")
			}
			broke(t, s, info, forced(log))
			if got := readCount(t, s); got != tc.counter {
				t.Errorf("the counter is %q", got)
			}
		})
	}
}

func TestBreakIsBoundToWhatWasLookedAt(t *testing.T) {
	lease := func(mods ...func(*record.Lease)) func(*Store) {
		return func(s *Store) { putLease(t, s, time.Hour, mods...) }
	}
	torn := func(text string) func(*Store) {
		return func(s *Store) { put(t, s, leaseSuffix, []byte(text), time.Hour) }
	}
	claimB := func(r *record.Lease) { r.OwnerBootID, r.ClaimID = "owner-b", "claim-b" }
	renewed := func(s *Store) { putLease(t, s, sec, julyFormat) }
	for name, tc := range map[string]struct {
		seen, now func(*Store)
		same      bool
	}{
		"nothing has changed":                {lease(), nil, true},
		"it was renewed":                     {lease(), func(s *Store) { putLease(t, s, sec) }, true},
		"another's claim":                    {lease(), lease(claimB), false},
		"the same owner's new claim":         {lease(), lease(func(r *record.Lease) { r.ClaimID = "claim-2" }), false},
		"a claim without an id":              {lease(), lease(func(r *record.Lease) { r.ClaimID = "" }), false},
		"gone":                               {lease(), func(s *Store) { _ = os.Remove(s.path(agent, leaseSuffix)) }, false},
		"torn meanwhile":                     {lease(), torn("{"), false},
		"of July":                            {lease(julyFormat), nil, true},
		"of July, renewed":                   {lease(julyFormat), renewed, false},
		"of July, a claim with an id":        {lease(julyFormat), lease(), false},
		"torn":                               {torn("{"), nil, true},
		"torn, and mended":                   {torn("{"), lease(), false},
		"torn otherwise":                     {torn("{"), torn("{\""), false},
		"emptied":                            {torn("{"), torn(""), false},
		"empty":                              {torn(""), nil, true},
		"nothing was there":                  {func(*Store) {}, lease(), false},
		"nothing was there, and an empty is": {func(*Store) {}, torn(""), false},
		"nothing was there, nor is":          {func(*Store) {}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			putCounter(t, s, "5\n")
			tc.seen(s)
			info := look(t, s)
			if tc.now != nil {
				tc.now(s)
			}
			if tc.same {
				broke(t, s, info, forced(log))
				return
			}
			e, ok := errors.AsType[*ConflictError](refusedBreak(t, s, info, forced(log), "changed"))
			if !ok || e.Verdict.Sentence == "" {
				t.Errorf("%+v", e)
			}
		})
	}
	t.Run("an Info of nothing", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, time.Hour)
		unbroken(t, s, Info{ID: agent}, forced(log), "changed")
	})
}

// TestBreakOfALeaseThatChangesAfterAll lets a program that takes no flock change the lease inside the critical section.
func TestBreakOfALeaseThatChangesAfterAll(t *testing.T) {
	claimB := func(s *Store) {
		putLease(t, s, time.Hour, func(r *record.Lease) { r.OwnerBootID, r.ClaimID = "owner-b", "claim-b" })
	}
	renew := func(s *Store) { putLease(t, s, sec) }
	remove := func(s *Store) { _ = os.Remove(s.path(agent, leaseSuffix)) }
	for name, tc := range map[string]struct {
		step    string
		changes func(s *Store)
		force   bool
		want    string // "": removed
	}{
		"another's claim":                {"audited", claimB, true, "changed"},
		"another's claim, before that":   {"judged", claimB, true, "changed"},
		"renewed":                        {"audited", renew, false, "not yet"},
		"renewed, before that":           {"judged", renew, false, "not yet"},
		"renewed, forced":                {"audited", renew, true, ""},
		"gone":                           {"audited", remove, false, "changed"},
		"gone in the last moment":        {"removing", remove, false, "changed"},
		"a directory now":                {"audited", func(s *Store) { remove(s); _ = os.Mkdir(s.path(agent, leaseSuffix), 0o700) }, true, "unreadable"},
		"the same claim, a higher epoch": {"audited", func(s *Store) { putLease(t, s, time.Hour, withEpoch(9)) }, true, "changed"},
		"torn":                           {"audited", func(s *Store) { put(t, s, leaseSuffix, []byte("{"), time.Hour) }, true, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			putCounter(t, s, "5\n")
			putLease(t, s, time.Hour)
			info := look(t, s)
			var after map[string]entry
			s.fault = func(step string) error {
				if step == tc.step {
					tc.changes(s)
					after = contents(t, s.Dir)
				}
				return nil
			}
			err := s.Break(t.Context(), info, Removal{Reason: "why", Force: tc.force, Log: log})
			if tc.want == "" {
				if _, lerr := os.Lstat(s.path(agent, leaseSuffix)); err != nil || lerr == nil {
					t.Errorf("%v, and then %v", err, lerr)
				}
			} else {
				if got := is(err); !slices.Equal(got, []string{tc.want}) {
					t.Errorf("refused as %q: %v", got, err)
				}
				if now := contents(t, s.Dir); now[agent+leaseSuffix] != after[agent+leaseSuffix] {
					t.Errorf("now %+v, was %+v", now, after)
				}
			}
			if all := audited(t, log); len(all) != 1 || all[0].Nonce != "claim-a" {
				t.Errorf("%+v", all)
			}
		})
	}
}

func TestBreakRaisesTheCounterToTheRecordsEpoch(t *testing.T) {
	for name, tc := range map[string]struct {
		counter string // "": missing
		epoch   uint64
		then    string
	}{
		"behind":                   {"3\n", 9, "9\n"},
		"missing":                  {"", 9, "9\n"},
		"damaged":                  {"x", 9, "9\n"},
		"ahead":                    {"12\n", 9, "12\n"},
		"damaged, an old record":   {"x", 0, "x"},
		"there, and an old record": {"3\n", 0, "3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			if tc.counter != "" {
				putCounter(t, s, tc.counter)
			}
			putLease(t, s, sec, withEpoch(tc.epoch))
			broke(t, s, look(t, s), forced(log))
			if got := readCount(t, s); got != tc.then {
				t.Errorf("the counter is %q, want %q", got, tc.then)
			}
		})
	}
	t.Run("which cannot be raised", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		if err := os.Mkdir(s.path(agent, counterSuffix), 0o700); err != nil {
			t.Fatal(err)
		}
		putLease(t, s, time.Hour)
		err := s.Break(t.Context(), look(t, s), forced(log))
		if e, ok := errors.AsType[*IOError](err); !ok || e.Op != "break" || e.Path != s.path(agent, counterSuffix) {
			t.Error(err)
		}
		inspect(t, s, want{state: verdict.Expired, when: verdict.Now, flags: verdict.EpochFlag})
	})
	t.Run("not that of a record that nobody can read", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		put(t, s, leaseSuffix, []byte("{"), time.Hour)
		unbroken(t, s, look(t, s), Removal{Log: log}, "not yet") // no claim is granted beside a missing counter
		// Nobody would know any more that epochs were given out: the counter comes first.
		unbroken(t, s, look(t, s), forced(log), "epoch")
		if _, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 7, Reason: "as the log of the agent says", Log: log}); err != nil {
			t.Fatal(err)
		}
		broke(t, s, look(t, s), forced(log))
		if got := readCount(t, s); got != "7\n" {
			t.Errorf("the counter is %q", got)
		}
	})
}

func TestBreaksThatAreRefusedWhateverIsThere(t *testing.T) {
	s, log := store(t), auditLog(t)
	putLease(t, s, time.Hour)
	info := look(t, s)
	for _, id := range []string{"", "a/b", "..", "CON"} {
		bad := info
		bad.ID = id
		unbroken(t, s, bad, forced(log), "bad id")
	}
	unbroken(t, &Store{Dir: s.Dir, Table: s.Table, ReadOnly: true}, info, forced(log), "read-only")
	gone := &Store{Dir: filepath.Join(s.Dir, "gone"), Table: s.Table}
	if err := gone.Break(t.Context(), info, forced(log)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Break(ctx, info, Removal{Log: log}); err != nil {
		t.Errorf("one attempt is made whatever the context: %v", err)
	}
}

func TestNothingIsBrokenWithoutAnAuditLog(t *testing.T) {
	s := store(t)
	putCounter(t, s, "3\n") // and it is not raised
	putLease(t, s, time.Hour)
	dir := t.TempDir() // in the place of the log
	var err error
	writesNothing(t, s.Dir, func() { err = s.Break(t.Context(), look(t, s), Removal{Log: &audit.Log{Path: dir}}) })
	if e, ok := errors.AsType[*IOError](err); !ok || !slices.Equal(is(err), []string{"audit"}) || !strings.Contains(e.Error(), dir) {
		t.Error(err)
	}
	log := auditLog(t)
	entry := broke(t, s, look(t, s), Removal{Log: log})
	writesNothing(t, s.Dir, func() { err = s.Restore(t.Context(), entry, Removal{Log: &audit.Log{Path: dir}}) })
	if got := is(err); !slices.Equal(got, []string{"audit"}) {
		t.Error(err)
	}
}

func TestFaultsBetweenTheStepsOfABreakAreTold(t *testing.T) {
	broken := errors.New("broken")
	s, log := store(t), auditLog(t)
	putCounter(t, s, "5\n")
	putLease(t, s, time.Hour)
	info, at := look(t, s), ""
	s.fault = func(step string) error {
		if step == at {
			return broken
		}
		return nil
	}
	check := func(op string, err error, entries int) {
		t.Helper()
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, broken) || e.Op != op || e.ID != agent || e.Path == "" {
			t.Errorf("%s at %q: %v", op, at, err)
		}
		if got := len(audited(t, log)); got != entries {
			t.Errorf("%s at %q: %d entries", op, at, got)
		}
		// Each that was written is taken back, but for the break that is put back below.
		if got := failures(t, log); got != min(entries, 2)+max(0, entries-3) {
			t.Errorf("%s at %q: %d failures told", op, at, got)
		}
	}
	for i, step := range []string{"entered", "judged", "audited", "removing"} {
		at = step
		writesNothing(t, s.Dir, func() { check("break", s.Break(t.Context(), info, Removal{Log: log}), max(0, i-1)) })
	}
	at = ""
	entry := broke(t, s, info, Removal{Log: log})
	for i, step := range []string{"entered", "judged", "audited"} {
		at = step
		writesNothing(t, s.Dir, func() { check("put back", s.Restore(t.Context(), entry, Removal{Log: log}), 3+max(0, i-1)) })
	}
}
