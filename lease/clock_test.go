package lease

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestStampInTheFutureIsWatched(t *testing.T) {
	for name, tc := range map[string]struct {
		mod   func(*record.Lease)
		flags verdict.Flag
		state verdict.State
	}{
		"the holder runs":             {func(*record.Lease) {}, verdict.Clock, verdict.Live},
		"the holder cannot be judged": {onHost("web02"), verdict.Clock, verdict.Remote},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store(t)
				putLease(t, s, -3*time.Hour, tc.mod)
				began := time.Now()
				inspect(t, s, want{state: tc.state, when: verdict.At, in: 15 * sec, flags: tc.flags})
				for time.Since(began) < 15*sec {
					refused(t, s, other("owner-b"), "held")
					time.Sleep(sec)
				}
				refused(t, s, other("owner-b"), "held")
				time.Sleep(time.Millisecond)
				inspect(t, s, want{state: verdict.Expired, when: verdict.Now, flags: tc.flags})
				refused(t, &Store{Dir: s.Dir, Table: s.Table}, other("owner-c"), "held") // who has not watched knows nothing
				granted(t, s, other("owner-b"), 6)
			})
		})
	}
	t.Run("with a gap nothing is known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			putLease(t, s, -3*time.Hour)
			for range 20 {
				refused(t, s, other("owner-b"), "held")
				time.Sleep(2*sec + 1)
			}
		})
	})
	t.Run("a file that was gone meanwhile is another one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			putLease(t, s, -3*time.Hour)
			path, aside := s.path(agent, leaseSuffix), s.path("aside", "")
			for range 4 {
				for range 5 {
					refused(t, s, other("owner-b"), "held")
					time.Sleep(sec)
				}
				for _, err := range []error{os.Link(path, aside), os.Remove(path)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				inspect(t, s, want{state: verdict.Free, when: verdict.Now})
				if err := os.Rename(aside, path); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("a renewal begins it anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			for range 30 {
				putLease(t, s, -3*time.Hour)
				for range 5 {
					refused(t, s, other("owner-b"), "held")
					time.Sleep(sec)
				}
			}
		})
	})
	t.Run("a dead holder needs no watch", func(t *testing.T) {
		s := store(t)
		putLease(t, s, -3*time.Hour, byPID(deadPID))
		inspect(t, s, want{state: verdict.Dead, cause: "gone", when: verdict.Now, flags: verdict.Clock})
		granted(t, s, other("owner-b"), 6)
	})
	t.Run("a malformed file of the future", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := store(t)
			putCounter(t, s, "5\n")
			put(t, s, leaseSuffix, []byte("{"), -time.Hour)
			for range 15 {
				refused(t, s, other("owner-b"), "held")
				time.Sleep(sec)
			}
			time.Sleep(time.Millisecond)
			granted(t, s, other("owner-b"), 6)
		})
	})
}

func TestAgeIsTakenFromTheBootClock(t *testing.T) {
	clock := 100 * time.Hour
	for name, tc := range map[string]struct {
		mod   func(*record.Lease)
		age   time.Duration // by the wall clock
		state verdict.State
		when  verdict.When
		in    time.Duration
		flags verdict.Flag
	}{
		"the wall clock was set ahead": {func(*record.Lease) {}, time.Hour, verdict.Live, verdict.At, 12 * sec, 0},
		"the wall clock was set back":  {func(*record.Lease) {}, -time.Hour, verdict.Live, verdict.At, 12 * sec, verdict.Clock},
		"of another boot":              {func(r *record.Lease) { r.Ours.KernelBootID = "boot-0" }, 8 * sec, verdict.Remote, verdict.At, 7 * sec, 0},
		"of another time namespace":    {func(r *record.Lease) { r.Ours.TimeNS = 3 }, 8 * sec, verdict.Late, verdict.At, 7 * sec, 0},
		"none":                         {func(r *record.Lease) { r.Ours.BeatBootMS = 0 }, 8 * sec, verdict.Late, verdict.At, 7 * sec, 0},
		"ahead of the clock": {func(r *record.Lease) {
			r.Ours.BeatBootMS = (clock + 3*sec).Milliseconds()
		}, 8 * sec, verdict.Late, verdict.At, 7 * sec, 0},
		"beyond all time": {func(r *record.Lease) { r.Ours.BeatBootMS = 1<<63 - 1 }, 8 * sec, verdict.Late, verdict.At, 7 * sec, 0},
		"a moment ahead":  {func(r *record.Lease) { r.Ours.BeatBootMS = (clock + sec).Milliseconds() }, 4 * sec, verdict.Live, verdict.At, 15 * sec, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			s.sinceBoot = func() time.Duration { return clock }
			putLease(t, s, tc.age, asOurs, func(r *record.Lease) { r.Ours.BeatBootMS = (clock - 3*sec).Milliseconds() }, tc.mod)
			inspect(t, s, want{state: tc.state, when: tc.when, in: tc.in, flags: tc.flags})
		})
	}
	t.Run("where there are no time namespaces nobody knows whose clock it was", func(t *testing.T) {
		s := store(t, func(m *proctest.Machine) { m.TimeNS = 0 })
		s.sinceBoot = func() time.Duration { return clock }
		putLease(t, s, 8*sec, asOurs, func(r *record.Lease) { r.Ours.TimeNS, r.Ours.BeatBootMS = 0, (clock - 3*sec).Milliseconds() })
		inspect(t, s, want{state: verdict.Late, when: verdict.At, in: 7 * sec})
	})
}
