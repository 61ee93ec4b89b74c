package verdict

import (
	"math"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

func TestLeaseVerdicts(t *testing.T) {
	const s = time.Second
	claim := []string{"holdfast claim agent-1 --hold"}
	why := []string{"holdfast why agent-1"}
	cont := "kill -CONT 4242"
	missing := Counter{Path: "/leases/agent-1.epoch", Missing: true}
	damaged := Counter{Path: "/leases/agent-1.epoch", Problem: &garbage}
	epoch := append([]string{"holdfast epoch agent-1"}, why...)
	for name, tc := range map[string]struct {
		f *LeaseFacts
		w want
	}{
		"the holder runs and renews": {leaseFacts(3 * s), want{
			state: Live, when: At, at: 12 * s, exit: 3, next: why,
			says: []string{"Held. pid 4242 runs and renewed 3s ago; free when it releases, dies, or stops renewing (15s)."},
		}},
		"it is this very process": {leaseFacts(3*s, func(f *LeaseFacts) { f.Self = true }), want{
			state: Live, when: At, at: 12 * s, flags: Mine, exit: 3,
		}},
		"the holder lives in a sandbox": {leaseFacts(3*s, leaseProc(func() proc.Finding { p := running(); p.PID = 9001; return p }())), want{
			state: Live, when: At, at: 12 * s, exit: 3, says: []string{"pid 9001 (4242 in its own namespace) runs"},
		}},
		"the holder is known by its pid alone": {leaseFacts(3*s, leaseProc(func() proc.Finding { p := running(); p.Legacy = true; return p }())), want{
			state: Live, when: At, at: 12 * s, flags: Legacy, exit: 3,
		}},
		"renewal is overdue": {leaseFacts(9 * s), want{
			state: Late, when: At, at: 6 * s, exit: 3, next: why,
			says: []string{"Renewal is 4s overdue; free in 6s if it does not come."},
		}},
		"the holder is stopped": {leaseFacts(9*s, leaseProc(standing(proc.Stopped))), want{
			state: Stopped, when: At, at: 6 * s, exit: 3, next: append([]string{cont}, why...),
			says: []string{"pid 4242 is stopped; the lease runs out in 6s. `kill -CONT 4242` lets it go on."},
		}},
		"the holder is traced, which no signal ends": {leaseFacts(9*s, leaseProc(standing(proc.Traced))), want{
			state: Stopped, when: At, at: 6 * s, exit: 3, next: why, says: []string{"pid 4242 is traced", "Its debugger decides"},
		}},
		"the holder is frozen": {leaseFacts(9*s, leaseProc(standing(proc.Frozen))), want{
			state: Stopped, when: At, at: 6 * s, exit: 3, next: why, says: []string{"pid 4242 is frozen", "Thawing its control group"},
		}},
		"the TTL is over, yet the holder runs": {leaseFacts(60 * s), want{
			state: Expired, when: Now, exit: 4, next: claim,
			says: []string{"Ran out 45s ago. The next claimant takes it; pid 4242 still runs, so a turn may still be going on."},
		}},
		"the TTL is over, the holder is stopped": {leaseFacts(60*s, leaseProc(standing(proc.Stopped))), want{
			state: Expired, when: Now, flags: StoppedFlag, exit: 4, next: append([]string{cont}, claim...),
			says: []string{"pid 4242 still exists, stopped: a turn may go on when it continues."},
		}},
		"the TTL is over, the holder cannot be judged": {leaseFacts(60*s, leaseProc(hidden("another pid namespace"))), want{
			state: Expired, when: Now, exit: 4, says: []string{"whether pid 4242 still runs cannot be told from here (another pid namespace)"},
		}},
		"the holder is gone": {leaseFacts(2*s, leaseProc(gone(proc.Gone))), want{
			state: Dead, cause: "gone", when: Now, exit: 4, next: claim,
			says: []string{"Holder is gone: no process 4242. The next claimant takes it: nothing to do."},
		}},
		"the pid is another process now": {leaseFacts(10*s, leaseProc(gone(proc.Recycled))), want{
			state: Dead, cause: "recycled", when: Now, exit: 4,
			says: []string{"pid 4242 is now another process (postgres, started "},
		}},
		"what is dead is not alive by its pid": {leaseFacts(2*s, leaseProc(func() proc.Finding { p := gone(proc.Gone); p.Legacy = true; return p }())), want{
			state: Dead, cause: "gone", when: Now, exit: 4,
		}},
		"the machine was booted since": {leaseFacts(10*s, leaseProc(gone(proc.Reboot))), want{
			state: Dead, cause: "reboot", when: Now, exit: 4, says: []string{"booted after pid 4242 was last heard of"},
		}},
		"the holder is a zombie": {leaseFacts(10*s, leaseProc(gone(proc.Zombie))), want{
			state: Dead, cause: "zombie", when: Now, exit: 4, says: []string{"pid 4242 has exited", "its parent, pid 17 (sh), has not reaped"},
		}},
		"dead long after the TTL is dead, not expired": {leaseFacts(time.Hour, leaseProc(gone(proc.Gone))), want{
			state: Dead, cause: "gone", when: Now, exit: 4,
		}},
		"another machine": {leaseFacts(5*s, leaseOn("web02")), want{
			state: Remote, when: At, at: 10 * s, exit: 3, next: why,
			says: []string{"Held on web02; its process cannot be checked from here. Renewed 5s ago; free in 10s if not renewed."},
		}},
		"another machine, file written later than its stamp": {leaseFacts(40*s, leaseOn("web02"), func(f *LeaseFacts) {
			f.File.ModTime = now.Add(-4 * s)
		}), want{state: Remote, when: At, at: 11 * s, exit: 3}},
		"another machine, both past the TTL": {leaseFacts(16*s, leaseOn("web02")), want{state: Expired, when: Now, exit: 4}},
		"another machine, by the boot-time clock of ours": {leaseFacts(16*s, leaseOn("web02"), func(f *LeaseFacts) {
			f.Booted, f.File.ModTime = true, now
		}), want{state: Expired, when: Now, exit: 4}},
		"another pid namespace": {leaseFacts(6*s, leaseProc(hidden("another pid namespace"))), want{
			state: Unknown, when: At, at: 9 * s, exit: 5, next: why,
			says: []string{"Cannot tell from here whether pid 4242 lives (another pid namespace). Free in 9s if not renewed."},
		}},
		"the July format names no machine": {leaseFacts(4*s, func(f *LeaseFacts) {
			r := f.Record
			r.Epoch, r.Hostname, r.PIDStartS, r.Channel, r.Version, r.ClaimID = 0, "", 0, "", "", ""
			f.Proc = proc.Finding{Why: "the record names no machine"}
			f.Counter = missing
		}), want{state: Unknown, when: At, at: 11 * s, exit: 5, says: []string{"the record names no machine"}}},

		"nobody": {leaseFacts(0, noLease, counter(Counter{Value: 7})), want{
			state: Free, when: Now, next: claim,
			says: []string{`Nobody holds it. Last epoch 7. If something still says "running elsewhere", the cause is not in this directory.`},
		}},
		"nobody ever": {leaseFacts(0, noLease, counter(missing)), want{state: Free, when: Now, says: []string{"Nobody holds it. If"}}},
		"nobody, and the counter is damaged": {leaseFacts(0, noLease, counter(damaged)), want{
			state: Free, when: Blocked, by: "its damaged epoch counter (not an object)", flags: IsBlocked | EpochFlag, stuck: true, exit: 8,
			says: []string{"Nobody holds it. No claim is granted, because of its damaged epoch counter"}, next: epoch,
		}},
		"nobody, and the counter can count no further": {leaseFacts(0, noLease, counter(Counter{Value: math.MaxUint64})), want{
			state: Free, when: Blocked, by: "at its maximum", flags: IsBlocked, stuck: true, exit: 8,
		}},
		"dead, and the record has the last epoch": {leaseFacts(2*s, leaseProc(gone(proc.Gone)), func(f *LeaseFacts) { f.Record.Epoch = math.MaxUint64 }), want{
			state: Dead, cause: "gone", when: Blocked, by: "at its maximum", flags: IsBlocked | EpochFlag, stuck: true, exit: 8,
		}},
		"dead, the counter is damaged, the record knows": {leaseFacts(2*s, leaseProc(gone(proc.Gone)), counter(damaged)), want{
			state: Dead, cause: "gone", when: Now, flags: EpochFlag, exit: 4,
		}},
		"dead, the counter is damaged, the record is too old to know": {leaseFacts(2*s, leaseProc(gone(proc.Gone)), counter(damaged), func(f *LeaseFacts) {
			f.Record.Epoch = 0
		}), want{state: Dead, cause: "gone", when: Blocked, by: "damaged", flags: IsBlocked | EpochFlag, stuck: true, exit: 8}},
		"expired, the counter is damaged, the record is too old to know": {leaseFacts(20*s, counter(damaged), func(f *LeaseFacts) {
			f.Record.Epoch = 0
		}), want{state: Expired, when: Blocked, by: "damaged", flags: IsBlocked | EpochFlag, stuck: true, exit: 8}},
		"the counter is behind": {leaseFacts(2*s, counter(Counter{Value: 4})), want{state: Live, when: At, at: 13 * s, flags: EpochFlag, exit: 3}},
		"the counter is missing, and will be made by the next claim": {leaseFacts(2*s, counter(missing)), want{state: Live, when: At, at: 13 * s, exit: 3}},
		"the counter is ahead": {leaseFacts(2*s, counter(Counter{Value: 6})), want{state: Live, when: At, at: 13 * s, exit: 3}},

		"torn": {leaseFacts(6*s, badLease(torn)), want{
			state: Unreadable, cause: "malformed", when: At, at: 9 * s, exit: 7, next: why,
			says: []string{"Torn at byte 112. Honoured for 9s more, then claimable."},
		}},
		"torn and abandoned": {leaseFacts(16*s, badLease(torn)), want{
			state: Unreadable, cause: "malformed", when: Now, exit: 7, next: claim, says: []string{"Nobody rewrote it for 15s: the next claimant takes it."},
		}},
		"empty":   {leaseFacts(6*s, badLease(empty)), want{state: Unreadable, cause: "malformed", when: At, at: 9 * s, exit: 7, says: []string{"Empty"}}},
		"garbage": {leaseFacts(6*s, badLease(garbage)), want{state: Unreadable, cause: "malformed", when: At, at: 9 * s, exit: 7, says: []string{"not an object at byte 3"}}},
		"malformed, and the file tells no time": {leaseFacts(0, badLease(garbage), func(f *LeaseFacts) { f.File = record.Stat{} }), want{
			state: Unreadable, cause: "malformed", when: At, at: 15 * s, exit: 7,
		}},
		"malformed, and the counter is missing": {leaseFacts(6*s, badLease(garbage), counter(missing)), want{
			state: Unreadable, cause: "malformed", when: Blocked, by: "its missing epoch counter", flags: IsBlocked, stuck: true, exit: 7, next: epoch,
		}},
		"a symlink": {leaseFacts(0, badLease(symlink)), want{
			state: Unreadable, cause: "not-regular", when: Blocked, by: "a symlink", flags: IsBlocked, stuck: true, exit: 7,
			says: []string{"A symlink is in its place.", "a person must act"}, next: why,
		}},
		"a FIFO":    {leaseFacts(0, badLease(fifo)), want{state: Unreadable, cause: "not-regular", when: Blocked, by: "a FIFO", flags: IsBlocked, stuck: true, exit: 7}},
		"too large": {leaseFacts(0, badLease(tooLarge)), want{state: Unreadable, cause: "too-large", when: Blocked, by: "a file of over 64 KiB in its place", flags: IsBlocked, stuck: true, exit: 7, says: []string{"Over 64 KiB"}}},
		"denied": {leaseFacts(0, badLease(denied)), want{
			state: Unreadable, cause: "denied", when: Blocked, by: "owned by uid 0, mode 0600", flags: IsBlocked, stuck: true, exit: 7,
			says: []string{"Cannot be read: owned by uid 0, mode 0600."},
		}},

		"the flock file is none": {leaseFacts(3*s, func(f *LeaseFacts) {
			e := fifo
			e.Path = "/leases/agent-1.lock"
			f.Section = &e
		}), want{
			state: Live, when: Blocked, by: "its flock file: a FIFO", flags: IsBlocked, stuck: true, exit: 3,
			says: []string{"Nothing can be claimed: its flock file /leases/agent-1.lock is a FIFO."},
		}},
		"somebody is stopped inside": {leaseFacts(0, noLease, func(f *LeaseFacts) {
			f.Inside = []proc.FlockHolder{{Process: proc.Process{PID: 99, Name: "mux"}, Stopped: true}}
		}), want{
			state: Free, when: Blocked, by: "pid 99 (mux), stopped inside its critical section", flags: IsBlocked, stuck: true, exit: 8,
			says: []string{"Every claim waits: pid 99 (mux) is stopped inside its critical section."}, next: append([]string{"kill -CONT 99"}, why...),
		}},
		"nobody looked": {&LeaseFacts{}, want{state: Unknown, when: Blocked, by: "nobody having looked", flags: IsBlocked, stuck: true, exit: 5}},
	} {
		t.Run(name, func(t *testing.T) { check(t, tc.f.Judge(now), tc.w) })
	}
}

func TestLeaseEvidenceTellsWhatDecides(t *testing.T) {
	f := leaseFacts(40*time.Second, leaseOn("web02"), func(f *LeaseFacts) {
		f.File.ModTime = now.Add(-4 * time.Second)
		f.Still = now.Add(-3 * time.Second)
		f.Record.InstanceID = "agent-2"
		f.Counter.Value = 3
		f.Inside = []proc.FlockHolder{{Process: proc.Process{PID: 99, Name: "mux"}, Stopped: true}}
		f.Section = &fifo
	})
	v := f.Judge(now)
	for name, part := range map[string]string{
		"file":             "watched unchanged for 3s",
		"host":             "web02",
		"renewal":          "renewed 40s ago, runs out after 15s, file written 4s ago; both count",
		"instance id":      `the record says "agent-2", the file name "agent-1"`,
		"epoch counter":    "3; the record's epoch is 5; the next owner gets 6",
		"critical section": "pid 99 (mux) is stopped inside it; its flock file is a FIFO",
	} {
		if got := saw(v, name); !strings.Contains(got, part) {
			t.Errorf("%s: %q, want %q", name, got, part)
		}
	}
	f.Booted, f.Counter = true, Counter{Missing: true}
	v = f.Judge(now)
	if got := saw(v, "renewal"); !strings.Contains(got, "by the boot-time clock") {
		t.Errorf("renewal: %q", got)
	}
	if got := saw(v, "epoch counter"); !strings.HasPrefix(got, "missing; the record's epoch is 5; the next owner gets 6") {
		t.Errorf("epoch counter: %q", got)
	}
	v = leaseFacts(0, noLease, counter(Counter{Problem: &garbage})).Judge(now)
	if got := saw(v, "epoch counter"); got != "damaged: not an object; no claim is granted" {
		t.Errorf("epoch counter: %q", got)
	}
	// The one check that speaks of time speaks for a holder only while it keeps its word.
	for age, speaks := range map[time.Duration]proc.Speaks{14 * time.Second: proc.ForAlive, 16 * time.Second: proc.Neither} {
		for _, c := range leaseFacts(age).Judge(now).Evidence {
			if c.Name == "renewal" && c.Speaks != speaks {
				t.Errorf("renewed %v ago speaks for %v", age, c.Speaks)
			}
		}
	}
}

func TestNextEpoch(t *testing.T) {
	unreadable := &record.Error{Problem: record.Malformed, Detail: "x"}
	for name, tc := range map[string]struct {
		recorded uint64
		noRecord bool
		problem  bool
		counter  Counter
		next     uint64
		refused  bool
	}{
		"first":                                     {noRecord: true, counter: Counter{Missing: true}, next: 1},
		"counter":                                   {noRecord: true, counter: Counter{Value: 7}, next: 8},
		"record alone":                              {recorded: 9, counter: Counter{Missing: true}, next: 10},
		"record ahead":                              {recorded: 9, counter: Counter{Value: 3}, next: 10},
		"counter ahead":                             {recorded: 3, counter: Counter{Value: 9}, next: 10},
		"damaged, record knows":                     {recorded: 9, counter: Counter{Problem: unreadable}, next: 10},
		"damaged, an old build's record":            {counter: Counter{Problem: unreadable}, refused: true},
		"damaged, no lease":                         {noRecord: true, counter: Counter{Problem: unreadable}, refused: true},
		"an old build's record":                     {counter: Counter{Missing: true}, next: 1},
		"unreadable lease, counter there":           {noRecord: true, problem: true, counter: Counter{Value: 4}, next: 5},
		"unreadable lease, counter missing":         {noRecord: true, problem: true, counter: Counter{Missing: true}, refused: true},
		"unreadable lease, counter damaged":         {noRecord: true, problem: true, counter: Counter{Problem: unreadable}, refused: true},
		"one is left":                               {noRecord: true, counter: Counter{Value: math.MaxUint64 - 1}, next: math.MaxUint64},
		"counter at the maximum":                    {noRecord: true, counter: Counter{Value: math.MaxUint64}, refused: true},
		"record at the maximum, counter is damaged": {recorded: math.MaxUint64, counter: Counter{Problem: unreadable}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := leaseFacts(0, counter(tc.counter))
			f.Record.Epoch = tc.recorded
			if tc.noRecord {
				f.Record = nil
			}
			if tc.problem {
				f.Problem = unreadable
			}
			next, refusal := f.NextEpoch()
			if next != tc.next || (refusal != "") != tc.refused {
				t.Errorf("next %d, refusal %q", next, refusal)
			}
		})
	}
}
