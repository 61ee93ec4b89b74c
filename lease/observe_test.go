package lease

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// lookUp checks whether a look-up finds somebody.
func lookUp(tb testing.TB, s *Store, somebody bool) {
	tb.Helper()
	h, err := s.LiveHolder(agent, "owner-b")
	if err != nil || (h != nil) != somebody {
		tb.Fatalf("held by %+v (%v), want somebody: %v", h, err, somebody)
	}
}

func TestStampsInTheFutureOneByOne(t *testing.T) {
	const ahead = -3 * time.Hour
	dead := func(r *record.Lease) { r.PID = deadPID }
	for name, tc := range map[string]struct {
		renewed, mtime time.Duration // ago
		mod            func(*record.Lease)
		state          verdict.State // at first
		flags          verdict.Flag
		watch          bool // only watching frees it
		after          verdict.State
	}{
		"both, the holder runs":                          {ahead, ahead, nil, verdict.Live, verdict.Clock, true, verdict.Expired},
		"the renewal, the holder runs":                   {ahead, time.Hour, nil, verdict.Live, verdict.Clock, true, verdict.Expired},
		"the file, the holder runs":                      {16 * sec, ahead, nil, verdict.Expired, 0, false, verdict.Expired},
		"both, another machine":                          {ahead, ahead, onHost("web02"), verdict.Remote, verdict.Clock, true, verdict.Expired},
		"the renewal, another machine":                   {ahead, time.Hour, onHost("web02"), verdict.Remote, verdict.Clock, true, verdict.Expired},
		"the file, another machine":                      {time.Hour, ahead, onHost("web02"), verdict.Remote, verdict.Clock, true, verdict.Expired},
		"neither, another machine":                       {time.Hour, time.Hour, onHost("web02"), verdict.Expired, 0, false, verdict.Expired},
		"both, nobody knows who":                         {ahead, ahead, byPID(0), verdict.Unknown, verdict.Clock, true, verdict.Expired},
		"both, the holder is dead":                       {ahead, ahead, dead, verdict.Dead, verdict.Clock, false, verdict.Dead},
		"beyond all time":                                {-time.Hour, time.Hour, func(r *record.Lease) { r.RenewedAtMS = 1<<63 - 1 }, verdict.Live, verdict.Clock, true, verdict.Expired},
		"beyond all time, and another machine's file is": {-time.Hour, ahead, func(r *record.Lease) { r.RenewedAtMS, r.Hostname = 1<<63-1, "web02" }, verdict.Remote, verdict.Clock, true, verdict.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour) // fake time begins in 2000, before which a stamp is flagged
				s := store(t)
				mod := tc.mod
				if mod == nil {
					mod = func(*record.Lease) {}
				}
				put(t, s, leaseSuffix, recorded(s, tc.renewed, mod).Encode(), tc.mtime)
				first, err := s.Inspect(agent)
				if v := first.Verdict; err != nil || v.State != tc.state || v.Flags != tc.flags {
					t.Fatalf("at first %v, flags %v: %s (%v)", v.State, v.Flags.Strings(), v.Sentence, err)
				}
				lookUp(t, s, tc.watch)
				if !tc.watch {
					granted(t, s, other("owner-b"), 6)
					return
				}
				for range 15 {
					refused(t, s, other("owner-b"), "held")
					lookUp(t, s, true)
					time.Sleep(sec)
				}
				refused(t, s, other("owner-b"), "held") // 15 s is not more than 15 s
				time.Sleep(time.Millisecond)
				lookUp(t, s, false)
				if info, err := s.Inspect(agent); err != nil || info.Verdict.State != tc.after || info.Verdict.Claimable.When != verdict.Now {
					t.Errorf("%v: %s (%v)", info.Verdict.State, info.Verdict.Sentence, err)
				}
				lookUp(t, &Store{Dir: s.Dir, Table: s.Table}, true) // who has not watched knows nothing
				granted(t, s, other("owner-b"), 6)
			})
		})
	}
}

func TestMalformedLeaseOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(t)
		putCounter(t, s, "5\n")
		put(t, s, leaseSuffix, []byte("{"), -time.Hour)
		for range 15 {
			inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.At, in: time.Until(first(t, s).Add(15 * sec))})
			lookUp(t, s, true)
			time.Sleep(sec)
		}
		time.Sleep(time.Millisecond)
		inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.Now})
		lookUp(t, s, false)
		time.Sleep(2*sec + 1) // nobody looked meanwhile
		lookUp(t, s, true)
		refused(t, s, other("owner-b"), "held")
	})
}

// first is since when the store has watched the lease.
func first(tb testing.TB, s *Store) time.Time {
	tb.Helper()
	info, err := s.Inspect(agent)
	if err != nil {
		tb.Fatal(err)
	}
	return info.Facts.Still
}

func TestMalformedLeaseOfNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(t)
		putCounter(t, s, "5\n")
		put(t, s, leaseSuffix, []byte("{"), time.Hour)
		for _, watched := range []time.Duration{0, sec, 2 * sec, 3 * sec} {
			info, err := s.Inspect(agent)
			if err != nil || info.Verdict.Claimable.When != verdict.Now {
				t.Fatal(info.Verdict.Sentence, err)
			}
			// As where a file system tells no time of a file.
			info.Facts.File.ModTime = time.Time{}
			v := info.Facts.Judge(info.Facts.Look)
			if got := v.Claimable.At.Sub(info.Facts.Look); v.Claimable.When != verdict.At || got != 15*sec-watched {
				t.Errorf("after %v claimable %v in %v: %s", watched, v.Claimable.When, got, v.Sentence)
			}
			time.Sleep(sec)
		}
	})
}

func TestObservingFreesALeaseOfTheFuture(t *testing.T) {
	for name, plants := range map[string]func(s *Store){
		"a record":         func(s *Store) { putLease(t, s, -3*time.Hour, onHost("web02")) },
		"a malformed file": func(s *Store) { put(t, s, leaseSuffix, []byte("{"), -time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(t)
				putCounter(t, s, "5\n")
				plants(s)
				began := time.Now()
				var info Info
				var err error
				writesNothing(t, s.Dir, func() { info, err = s.Observe(t.Context(), agent, s.ttl()) })
				if took := time.Since(began); err != nil || info.Verdict.Claimable.When != verdict.Now || took <= 15*sec || took > 16*sec {
					t.Fatalf("after %v: %s (%v)", took, info.Verdict.Sentence, err)
				}
				time.Sleep(2 * sec)
				granted(t, s, other("owner-b"), 6)
			})
		})
	}
}

func TestObservingEnds(t *testing.T) {
	future := func(s *Store) { putLease(t, s, -3*time.Hour) }
	for name, tc := range map[string]struct {
		plants func(s *Store)
		after  func(s *Store) // 3.5 s
		took   time.Duration
		state  verdict.State
	}{
		"when its time is over":       {future, nil, 10*sec + time.Millisecond, verdict.Live},
		"when it is renewed":          {future, func(s *Store) { putLease(t, s, sec) }, 4 * sec, verdict.Live},
		"when it is released":         {future, func(s *Store) { _ = os.Remove(s.path(agent, leaseSuffix)) }, 4 * sec, verdict.Free},
		"when it cannot be read":      {future, func(s *Store) { put(t, s, leaseSuffix, nil, sec) }, 4 * sec, verdict.Unreadable},
		"when it runs out":            {func(s *Store) { putLease(t, s, 11500*time.Millisecond) }, nil, 4 * sec, verdict.Expired},
		"at once, with a dead holder": {func(s *Store) { putLease(t, s, sec, byPID(deadPID)) }, nil, 0, verdict.Dead},
		"at once, with nobody":        {func(*Store) {}, nil, 0, verdict.Free},
		"when a blocked one is claimed": {
			func(s *Store) { putCounter(t, s, "x") },
			func(s *Store) { putLease(t, s, 0) }, 4 * sec, verdict.Live,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(t)
				tc.plants(s)
				if tc.after != nil {
					time.AfterFunc(3500*time.Millisecond, func() { tc.after(s) })
				}
				began := time.Now()
				info, err := s.Observe(t.Context(), agent, 10*sec)
				if took := time.Since(began); err != nil || took != tc.took || info.Verdict.State != tc.state {
					t.Errorf("after %v: %v: %s (%v)", took, info.Verdict.State, info.Verdict.Sentence, err)
				}
			})
		})
	}
	t.Run("with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			future(s)
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
			began := time.Now()
			info, err := s.Observe(ctx, agent, time.Hour)
			if took := time.Since(began); err != nil || took != 3500*time.Millisecond || info.Verdict.State != verdict.Live {
				t.Errorf("after %v: %s (%v)", took, info.Verdict.Sentence, err)
			}
		})
	})
	t.Run("never by a gap, in which a renewal could hide", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			future(s)
			looks := 0
			s.fault = func(step string) error {
				if looks++; step == "looked" && looks == 5 {
					time.Sleep(3 * sec) // so that the next look is late
				}
				return nil
			}
			began := time.Now()
			info, err := s.Observe(t.Context(), agent, 10*sec)
			if took := time.Since(began); err != nil || took < 17*sec || info.Facts.Look.Sub(info.Facts.Still) <= 10*sec {
				t.Errorf("after %v: %s (%v)", took, info.Verdict.Sentence, err)
			}
		})
	})
	t.Run("with an error", func(t *testing.T) {
		s := store(t)
		if _, err := s.Observe(t.Context(), "a/b", 0); !errors.Is(err, ErrBadID) {
			t.Error(err)
		}
		gone := &Store{Dir: filepath.Join(s.Dir, "gone"), Table: s.Table}
		if _, err := gone.Observe(t.Context(), agent, 0); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("with an error of the directory that went meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			future(s)
			time.AfterFunc(1500*time.Millisecond, func() { _ = os.RemoveAll(s.Dir) })
			if _, err := s.Observe(t.Context(), agent, time.Hour); !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		})
	})
}
