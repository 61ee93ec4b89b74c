package verdict

import (
	"testing"
	"time"
	"unsafe"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// step is what is so until a moment, and what from the moment after it.
type step struct {
	at   time.Duration // from now
	from core
	to   core
}

// core is what of a verdict is a decision and no wording.
type core struct {
	state State
	when  When
	flags Flag
	stuck bool
}

func coreOf(v Verdict) core { return core{v.State, v.Claimable.When, v.Flags, v.Stuck} }

// TestLimitsMustBeExceeded judges each limit at the very moment and a nanosecond later, and asks every verdict
// before it when it will change.
func TestLimitsMustBeExceeded(t *testing.T) {
	const s = time.Second
	blocked := func(st State) core { return core{st, Blocked, IsBlocked, true} }
	created := func(age time.Duration) lockMod {
		return func(f *LockFacts) { f.Record.CreatedAtMS = uint64(now.Add(-age).UnixMilli()) }
	}
	for name, tc := range map[string]struct {
		f     Subject
		steps []step
	}{
		"lease: late at 7.5 s, expired at 15 s": {leaseFacts(0), []step{
			{7500 * time.Millisecond, core{Live, At, 0, false}, core{Late, At, 0, false}},
			{15 * s, core{Late, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: stopped until it is expired": {leaseFacts(0, leaseProc(standing(proc.Stopped))), []step{
			{15 * s, core{Stopped, At, 0, false}, core{Expired, Now, StoppedFlag, false}},
		}},
		"lease: remote until it is expired": {leaseFacts(5*s, leaseOn("web02")), []step{
			{10 * s, core{Remote, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: unknown until it is expired": {leaseFacts(5*s, leaseProc(hidden("x"))), []step{
			{10 * s, core{Unknown, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: the later of stamp and file time counts": {leaseFacts(20*s, leaseOn("web02"), func(f *LeaseFacts) { f.File.ModTime = now.Add(-4 * s) }), []step{
			{11 * s, core{Remote, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: its own TTL counts": {leaseFacts(0, func(f *LeaseFacts) { f.TTL, f.Interval = 60*s, 20*s }), []step{
			{30 * s, core{Live, At, 0, false}, core{Late, At, 0, false}},
			{60 * s, core{Late, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: a TTL that is over before renewal is late": {leaseFacts(0, func(f *LeaseFacts) { f.TTL, f.Interval = 5*s, 5*s }), []step{
			{5 * s, core{Live, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lease: malformed until 15 s": {leaseFacts(0, badLease(garbage)), []step{
			{15 * s, core{Unreadable, At, 0, false}, core{Unreadable, Now, 0, false}},
		}},
		"lease: a stamp of tomorrow is watched for a TTL": {leaseFacts(-24*time.Hour, func(f *LeaseFacts) { f.Still = now.Add(-4 * s) }), []step{
			{11 * s, core{Live, At, Clock, false}, core{Expired, Now, Clock, false}},
		}},
		"lease: what blocks lets no time pass": {leaseFacts(0, badLease(garbage), counter(Counter{Missing: true})), nil},
		"lease: free":                          {leaseFacts(0, noLease), nil},
		"lease: dead":                          {leaseFacts(0, leaseProc(gone(proc.Gone))), nil},
		"lease: a symlink":                     {leaseFacts(0, badLease(symlink)), nil},

		"lock: late at 15 s, long held at 600 s, never expired": {lockFacts(0, created(0)), []step{
			{15 * s, core{Live, Event, 0, false}, core{Late, Event, 0, false}},
			{600 * s, core{Late, Event, 0, false}, core{Late, Event, LongHeld, false}},
		}},
		"lock: long held before it is late": {lockFacts(0, created(599*s)), []step{
			{s, core{Live, Event, 0, false}, core{Live, Event, LongHeld, false}},
			{15 * s, core{Live, Event, LongHeld, false}, core{Late, Event, LongHeld, false}},
		}},
		"lock: stopped is long held, not late": {lockFacts(0, lockProc(standing(proc.Stopped)), created(590*s)), []step{
			{10 * s, core{Stopped, Event, 0, true}, core{Stopped, Event, LongHeld, true}},
		}},
		"lock: remote until 75 s": {lockFacts(70*s, lockOn("web02")), []step{
			{5 * s, core{Remote, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lock: unknown until 75 s": {lockFacts(70*s, lockProc(hidden("x")), created(700*s)), []step{
			{5 * s, core{Unknown, At, 0, false}, core{Expired, Now, 0, false}},
		}},
		"lock: a stamp of tomorrow is watched for 75 s": {lockFacts(-24*time.Hour, lockOn("web02"), func(f *LockFacts) { f.Still = now.Add(-70 * s) }), []step{
			{5 * s, core{Remote, At, Clock, false}, core{Expired, Now, Clock, false}},
		}},
		"lock: torn until 15 s": {lockFacts(5*s, badLock(torn)), []step{
			{10 * s, core{Unreadable, At, 0, false}, core{Unreadable, Now, 0, false}},
		}},
		"lock: torn, with a token that waits longer": {lockFacts(5*s, badLock(torn), with(tokenFacts(20*s, badToken(empty)))), []step{
			{10 * s, core{Unreadable, At, 0, false}, blocked(Unreadable)},
			{40 * s, blocked(Unreadable), core{Unreadable, Now, 0, false}},
		}},
		"lock: dead behind a malformed token until 60 s": {lockFacts(0, lockProc(gone(proc.Gone)), with(tokenFacts(50*s, badToken(empty)))), []step{
			{10 * s, blocked(Dead), core{Dead, Now, 0, false}},
		}},
		"lock: remote, then behind a malformed token": {lockFacts(70*s, lockOn("web02"), with(tokenFacts(20*s, badToken(empty)))), []step{
			{5 * s, core{Remote, At, 0, false}, blocked(Expired)},
			{40 * s, blocked(Expired), core{Expired, Now, 0, false}},
		}},
		"lock: a malformed token beside a living holder changes nothing": {lockFacts(0, created(0), with(tokenFacts(50*s, badToken(empty)))), []step{
			{15 * s, core{Live, Event, 0, false}, core{Late, Event, 0, false}},
			{600 * s, core{Late, Event, 0, false}, core{Late, Event, LongHeld, false}},
		}},
		"lock: behind a living token for ever": {lockFacts(0, lockProc(gone(proc.Gone)), with(tokenFacts(0))), nil},
		"lock: torn while somebody writes":     {lockFacts(0, badLock(torn), func(f *LockFacts) { f.Writers = []int{31} }), nil},
		"lock: garbage":                        {lockFacts(0, badLock(garbage)), nil},
		"lock: free":                           {lockFacts(0, noLock), nil},
		"lock: a symlink before a token":       {lockFacts(0, badLock(symlink), with(tokenFacts(50*s, badToken(empty)))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			at := now
			for _, st := range tc.steps {
				limit := now.Add(st.at)
				for _, before := range []time.Time{at, at.Add(limit.Sub(at) / 2), limit} {
					v := tc.f.Judge(before)
					if got := coreOf(v); got != st.from {
						t.Errorf("at %v: %+v, want %+v", before.Sub(now), got, st.from)
					}
					if want := limit.Add(1); !v.Changes.Equal(want) {
						t.Errorf("at %v: changes at %v, want %v", before.Sub(now), v.Changes.Sub(now), st.at)
					}
				}
				at = limit.Add(1)
				if got := coreOf(tc.f.Judge(at)); got != st.to {
					t.Errorf("after %v: %+v, want %+v", st.at, got, st.to)
				}
			}
			if v := tc.f.Judge(at); !v.Changes.IsZero() {
				t.Errorf("changes once more at %v", v.Changes.Sub(now))
			}
			if from, to := coreOf(tc.f.Judge(at)), coreOf(tc.f.Judge(at.Add(1000*time.Hour))); from.state != to.state || from.when != to.when {
				t.Errorf("weeks later: %+v, was %+v", to, from)
			}
		})
	}
}

func TestClockFlag(t *testing.T) {
	const s = time.Second
	ms := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	y2k := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for name, tc := range map[string]struct {
		acquired, renewed int64
		flag              bool
	}{
		"as usual":                              {ms(time.Hour), ms(s), false},
		"renewed 2 s ahead":                     {ms(time.Hour), ms(-2 * s), false},
		"renewed over 2 s ahead":                {ms(time.Hour), ms(-2*s - time.Millisecond), true},
		"acquired 2 s ahead":                    {ms(-2 * s), ms(s), false},
		"acquired over 2 s ahead":               {ms(-2*s - time.Millisecond), ms(s), true},
		"renewed as the year 2000 began":        {y2k, y2k, false},
		"renewed before the year 2000":          {ms(time.Hour), y2k - 1, true},
		"acquired before the year 2000":         {y2k - 1, ms(s), true},
		"acquired a day after renewed":          {ms(0), ms(24 * time.Hour), false},
		"acquired over a day after renewed":     {ms(0), ms(24*time.Hour) - 1, true},
		"held for a year":                       {ms(365 * 24 * time.Hour), ms(s), false},
		"zero":                                  {0, 0, true},
		"the ends of the numbers, both ways up": {-1 << 63, 1<<63 - 1, true},
		"the ends of the numbers, both down":    {-1 << 63, -1 << 63, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := leaseFacts(s)
			f.Record.AcquiredAtMS, f.Record.RenewedAtMS = tc.acquired, tc.renewed
			v := f.Judge(now)
			if got := v.Flags.Has(Clock); got != tc.flag {
				t.Errorf("lease: clock %v", got)
			}
			if got := saw(v, "clock") != ""; got != tc.flag {
				t.Errorf("lease: evidence %q", saw(v, "clock"))
			}
			if tc.acquired < 0 || tc.renewed < 0 {
				return
			}
			l := lockFacts(s)
			l.Record.CreatedAtMS, l.Record.HeartbeatAtMS = uint64(tc.acquired), uint64(tc.renewed)
			if got := l.Judge(now).Flags.Has(Clock); got != tc.flag {
				t.Errorf("lock: clock %v", got)
			}
			k := tokenFacts(s)
			k.Record.CreatedAtMS, k.Record.HeartbeatAtMS = uint64(tc.acquired), uint64(tc.renewed)
			if got := k.Judge(now).Flags.Has(Clock); got != tc.flag {
				t.Errorf("token: clock %v", got)
			}
		})
	}
	t.Run("a clock step moved the start of a living holder", func(t *testing.T) {
		p := running()
		p.ClockStep = true
		check(t, leaseFacts(2*s, leaseProc(p)).Judge(now), want{state: Live, when: At, at: 13 * s, flags: Clock, exit: 3})
		check(t, lockFacts(2*s, lockProc(p)).Judge(now), want{state: Live, when: Event, flags: Clock, exit: 3})
	})
	t.Run("heartbeat and file time of a holder that is judged by them lie apart", func(t *testing.T) {
		apart := func(d time.Duration) lockMod {
			return func(f *LockFacts) { f.File.ModTime = f.File.ModTime.Add(d) }
		}
		for d, flag := range map[time.Duration]bool{60 * s: false, -60 * s: false, 60*s + 1: true, -60*s - 1: true} {
			if got := lockFacts(10*s, lockOn("web02"), apart(d)).Judge(now).Flags.Has(Clock); got != flag {
				t.Errorf("%v apart, another machine: clock %v", d, got)
			}
			if lockFacts(10*s, apart(d)).Judge(now).Flags.Has(Clock) {
				t.Errorf("%v apart, a holder that is seen running: clock", d)
			}
			if lockFacts(10*s, lockProc(gone(proc.Gone)), apart(d)).Judge(now).Flags.Has(Clock) {
				t.Errorf("%v apart, a dead holder: clock", d)
			}
		}
	})
}

func TestStampsInTheFuture(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		stamp, watched time.Duration // from now; since when
		runsOut        time.Duration
	}{
		"first look":                          {3 * time.Hour, 0, 15 * s},
		"watched for a while":                 {3 * time.Hour, 10 * s, 5 * s},
		"watched for a TTL":                   {3 * time.Hour, 15 * s, 0},
		"a stamp of the past needs no watch":  {-4 * s, 2 * s, 11 * s},
		"ahead when the watch began":          {-4 * s, 10 * s, 5 * s},
		"written ahead of the watch, by skew": {s, 0, 15 * s},
	} {
		t.Run(name, func(t *testing.T) {
			f := leaseFacts(-tc.stamp, func(f *LeaseFacts) { f.Still = now.Add(-tc.watched) })
			if got := f.Expires().Sub(now); got != tc.runsOut {
				t.Errorf("lease runs out in %v, want %v", got, tc.runsOut)
			}
			l := lockFacts(-tc.stamp, lockOn("web02"), func(f *LockFacts) { f.Still = now.Add(-tc.watched) })
			if got, want := l.Expires().Sub(now), tc.runsOut+60*s; got != want {
				t.Errorf("lock runs out in %v, want %v", got, want)
			}
		})
	}
	t.Run("nobody watched", func(t *testing.T) {
		f := leaseFacts(-time.Hour, func(f *LeaseFacts) { f.Still = time.Time{} })
		if got := f.Expires().Sub(now); got != 15*s {
			t.Errorf("runs out in %v", got)
		}
	})
	t.Run("the wall clock was set back by an hour during the watch", func(t *testing.T) {
		look := time.Now()
		began := wallMoved(look.Add(-16*s), time.Hour)
		if by, wall := look.Sub(began), look.Round(0).Sub(began.Round(0)); by != 16*s || wall != 16*s-time.Hour {
			t.Fatalf("began %v ago, %v by the wall clock", by, wall)
		}
		f := leaseFacts(0, func(f *LeaseFacts) {
			f.Look, f.Still, f.Beat = look, began, began.Round(0)
		})
		if v := f.Judge(look); v.State != Expired {
			t.Errorf("%v: %s", v.State, v.Sentence)
		}
	})
}

// wallMoved is t as it was read when the wall clock was ahead by whole seconds; its monotonic reading stays. Package
// time has no way to say so: its first word counts nanoseconds in its lower 30 bits, and seconds above them.
func wallMoved(t time.Time, ahead time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(ahead/time.Second) << 30
	return t
}

func TestTimesSaturate(t *testing.T) {
	for ms, year := range map[int64]int{-1 << 63: 1, -1: 1969, 0: 1970, 1<<63 - 1: 9999} {
		if got := Milli(ms).UTC().Year(); got != year {
			t.Errorf("%d ms is in the year %d, want %d", ms, got, year)
		}
		if Milli(ms).IsZero() {
			t.Errorf("%d ms is the zero time, which means that there is no stamp", ms)
		}
	}
	if got := MilliU(1<<64 - 1).UTC().Year(); got != 9999 {
		t.Errorf("the largest stamp is in the year %d", got)
	}
	if got := Age(now.Add(time.Hour), now); got != 0 {
		t.Errorf("an age of %v", got)
	}
	if got := Age(Milli(-1<<63), Milli(1<<63-1)); got != 1<<63-1 {
		t.Errorf("the longest age is %v", got)
	}
	if got := left(Milli(1<<63-1), Milli(-1<<63)); got != "106751d 23h" {
		t.Errorf("the longest wait is %s", got)
	}
	v := leaseFacts(0, func(f *LeaseFacts) { f.Record.RenewedAtMS = -1 << 63; f.Beat = Milli(-1 << 63) }).Judge(now)
	if v.State != Expired || !v.Flags.Has(Clock) {
		t.Errorf("renewed when time began: %v %v", v.State, v.Flags.Strings())
	}
}

func TestDurationsInWords(t *testing.T) {
	const s = time.Second
	for d, want := range map[time.Duration]string{
		-5 * s: "0s", 0: "0s", s - 1: "0s", s: "1s", 119 * s: "119s", 120 * s: "2m 0s", 125 * s: "2m 5s",
		2*time.Hour - s: "119m 59s", 2 * time.Hour: "2h 0m", 47*time.Hour + 59*time.Minute: "47h 59m", 50 * time.Hour: "2d 2h",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v ago is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-5 * s: "0s", 0: "0s", 1: "1s", s: "1s", s + 1: "2s", 11 * s: "11s"} {
		if got := left(now.Add(d), now); got != want {
			t.Errorf("%v left is %q, want %q", d, got, want)
		}
	}
}

func TestUnreadableInWords(t *testing.T) {
	for want, e := range map[string]record.Error{
		"Empty: no record in it.":                    empty,
		"Torn at byte 112.":                          torn,
		"No record: not an object at byte 3.":        garbage,
		"A symlink is in its place.":                 symlink,
		"Over 64 KiB: not read.":                     tooLarge,
		"Cannot be read: owned by uid 0, mode 0600.": denied,
		"Ölig is in its place.":                      {Problem: record.NotRegular, Detail: "Ölig"},
		" is in its place.":                          {Problem: record.NotRegular},
	} {
		if got := unreadableSentence(&e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
