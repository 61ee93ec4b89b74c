package verdict

import (
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
)

func TestLockVerdicts(t *testing.T) {
	const s = time.Second
	why := []string{"holdfast why /aft/index/k/cache.lock"}
	legacy := func() proc.Finding { p := running(); p.Legacy = true; return p }()
	deadToken := tokenFacts(time.Hour, tokenProc(gone(proc.Gone)))
	liveToken := tokenFacts(time.Minute)
	farToken := tokenFacts(72*time.Hour, func(f *TokenFacts) { f.Record.Hostname, f.Proc = "old-host", away() })
	youngToken := tokenFacts(30*s, badToken(torn))
	oldToken := tokenFacts(61*s, badToken(torn))
	for name, tc := range map[string]struct {
		f *LockFacts
		w want
	}{
		"the holder runs": {lockFacts(2 * s), want{
			state: Live, when: Event, exit: 3, next: why,
			says: []string{"Held. pid 4242 runs, heartbeat 2s ago; free when it releases or dies."},
		}},
		"it is this very process": {lockFacts(2*s, func(f *LockFacts) { f.Self = true }), want{state: Live, when: Event, flags: Mine, exit: 3}},
		"held for long, heartbeat current": {lockFacts(2*s, func(f *LockFacts) {
			f.Record.CreatedAtMS = uint64(now.Add(-11 * time.Minute).UnixMilli())
		}), want{state: Live, when: Event, flags: LongHeld, exit: 3}},
		"a token beside a living lock stops nobody yet": {lockFacts(2*s, with(liveToken)), want{
			state: Live, when: Event, exit: 3, says: []string{"Should its holder die, a token blocks whoever comes next: token alive"},
		}},
		"torn, and a token will block it then": {lockFacts(5*s, badLock(torn), with(farToken)), want{
			state: Unreadable, cause: "malformed", when: At, at: 10 * s, exit: 7,
			says: []string{"Honoured for 10s more. A token will then block it: token unknown"},
		}},
		"torn, and a token clears before it": {lockFacts(0, badLock(torn), with(tokenFacts(50*s, badToken(torn)))), want{
			state: Unreadable, cause: "malformed", when: At, at: 15 * s, exit: 7, says: []string{"then the next attempt takes it"},
		}},
		"heartbeat is late": {lockFacts(45 * s), want{
			state: Late, when: Event, exit: 3, says: []string{"No heartbeat for 45s, but pid 4242 runs: the lock stays its own."},
		}},
		"late and known by its pid alone": {lockFacts(45*s, lockProc(legacy)), want{
			state: Late, when: Event, flags: Legacy, exit: 3, says: []string{"known by its pid alone (node), so it cannot be proved dead"},
		}},
		"an hour without heartbeat takes nothing from a living holder": {lockFacts(time.Hour), want{state: Late, when: Event, exit: 3}},
		"paused": {lockFacts(60*s, lockProc(standing(proc.Stopped))), want{
			state: Stopped, when: Event, stuck: true, exit: 3, next: append([]string{"kill -CONT 4242"}, why...),
			says: []string{"pid 4242 is stopped; the lock stays its own until it goes on or dies. `kill -CONT 4242`"},
		}},
		"stopped the moment it beat": {lockFacts(0, lockProc(standing(proc.Frozen))), want{state: Stopped, when: Event, stuck: true, exit: 3, next: why}},
		"gone": {lockFacts(2*s, lockProc(gone(proc.Gone))), want{
			state: Dead, cause: "gone", when: Now, exit: 4,
			says: []string{"Holder is gone: no process 4242. The next attempt takes it: nothing to do."},
		}},
		"recycled": {lockFacts(45*s, lockProc(gone(proc.Recycled))), want{state: Dead, cause: "recycled", when: Now, exit: 4}},
		"reboot":   {lockFacts(time.Hour, lockProc(gone(proc.Reboot))), want{state: Dead, cause: "reboot", when: Now, exit: 4}},
		"zombie":   {lockFacts(2*s, lockProc(gone(proc.Zombie))), want{state: Dead, cause: "zombie", when: Now, exit: 4}},
		"a zombie whose parent is not seen": {lockFacts(2*s, lockProc(proc.Finding{
			Answer: proc.Dead, Cause: proc.Zombie, PID: 4242, Machine: proc.Here,
		})), want{state: Dead, cause: "zombie", when: Now, exit: 4, says: []string{"pid 4242 has exited and is a zombie."}}},
		"a guest under our name": {lockFacts(3*s, lockOn("vm")), want{
			state: Remote, when: At, at: 72 * s, exit: 3, says: []string{"Held on vm; its process cannot be checked from here. Heartbeat 3s ago"},
		}},
		"another machine": {lockFacts(5*s, lockOn("web02")), want{
			state: Remote, when: At, at: 70 * s, exit: 3, says: []string{"Held on web02", "may take it in 70s if it stays still"},
		}},
		"another machine, silent": {lockFacts(81*s, lockOn("web02")), want{
			state: Expired, when: Now, exit: 4,
			says: []string{"No heartbeat from web02 for 81s (limit 75s). The next contender takes it."},
		}},
		"another machine, silent in the record alone": {lockFacts(81*s, lockOn("web02"), func(f *LockFacts) {
			f.File.ModTime = now.Add(-30 * s)
		}), want{state: Remote, when: At, at: 45 * s, exit: 3}},
		"another machine whose clock lags": {lockFacts(200*s, lockOn("web02"), func(f *LockFacts) {
			f.File.ModTime = now.Add(-30 * s)
		}), want{state: Remote, when: At, at: 45 * s, flags: Clock, exit: 3}},
		"a container was made anew": {lockFacts(30*s, lockProc(hidden("the same boot under another host name"))), want{
			state: Unknown, when: At, at: 45 * s, exit: 5, next: why,
			says: []string{"Cannot tell from here whether pid 4242 lives (the same boot under another host name). The next contender may take it in 45s if its heartbeat stays still."},
		}},
		"a container was made anew, a token of its host stays": {lockFacts(30*s, lockProc(hidden("x")), with(farToken)), want{
			state: Unknown, when: At, at: 45 * s, exit: 5, says: []string{"A token will then block it: token unknown of pid 4242 on old-host, 3d 0h old"},
		}},
		"unknown and silent": {lockFacts(76*s, lockProc(hidden("x"))), want{
			state: Expired, when: Now, exit: 4, says: []string{"No heartbeat from pid 4242 (x) for 76s"},
		}},
		"unknown for no reason that was told": {lockFacts(76*s, lockProc(proc.Finding{})), want{
			state: Expired, when: Now, exit: 4, says: []string{"it cannot be proven"},
		}},
		"another machine that is not named": {lockFacts(5*s, lockOn("")), want{state: Remote, when: At, at: 70 * s, exit: 3, says: []string{"Held on another machine"}}},
		"nobody":                            {lockFacts(0, noLock), want{state: Free, when: Now, exit: 0, says: []string{"Nobody holds it."}}},

		"dead with a dead token": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(deadToken)), want{
			state: Dead, cause: "gone", when: Now, exit: 4, says: []string{"It clears a token that is left over, too."},
		}},
		"dead with a living token": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(liveToken)), want{
			state: Dead, cause: "gone", when: Blocked, by: "token of pid 4242", flags: IsBlocked, stuck: true, exit: 8,
			says: []string{"a token blocks it: token alive of pid 4242, 60s old: blocks until that process removes it or dies."},
		}},
		"dead with another machine's token": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(farToken)), want{
			state: Dead, cause: "gone", when: Blocked, by: "token of old-host", flags: IsBlocked, stuck: true, exit: 8,
			says: []string{"blocks for ever; a person must decide (another machine)"},
		}},
		"dead with a malformed token": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(youngToken)), want{
			state: Dead, cause: "gone", when: Blocked, at: 30 * s, by: "a malformed token", flags: IsBlocked, stuck: true, exit: 8,
			says: []string{"token malformed, honoured for 30s more"},
		}},
		"dead with an old malformed token": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(oldToken)), want{
			state: Dead, cause: "gone", when: Now, exit: 4,
		}},
		"dead with a token that is none": {lockFacts(2*s, lockProc(gone(proc.Gone)), with(tokenFacts(0, badToken(fifo)))), want{
			state: Dead, cause: "gone", when: Blocked, by: "an unreadable token", flags: IsBlocked, stuck: true, exit: 8,
			says: []string{"token unreadable (a FIFO): blocks until a person acts"},
		}},
		"expired with a living token": {lockFacts(81*s, lockOn("web02"), with(liveToken)), want{
			state: Expired, when: Blocked, by: "token of pid 4242", flags: IsBlocked, stuck: true, exit: 8,
		}},

		"torn": {lockFacts(6*s, badLock(torn)), want{
			state: Unreadable, cause: "malformed", when: At, at: 9 * s, exit: 7, says: []string{"Torn at byte 112. Honoured for 9s more"},
		}},
		"empty, unchanged for long": {lockFacts(16*s, badLock(empty)), want{
			state: Unreadable, cause: "malformed", when: Now, exit: 7, says: []string{"Unchanged for over 15s: the next attempt takes it."},
		}},
		"torn, old, with a living token": {lockFacts(16*s, badLock(torn), with(liveToken)), want{
			state: Unreadable, cause: "malformed", when: Blocked, by: "token of pid 4242", flags: IsBlocked, stuck: true, exit: 7,
		}},
		"torn, old, and somebody writes it": {lockFacts(16*s, badLock(torn), func(f *LockFacts) { f.Writers = []int{31} }), want{
			state: Unreadable, cause: "malformed", when: Blocked, by: "pid 31, which has it open for writing or flocked", flags: IsBlocked, stuck: true, exit: 7,
		}},
		"half of another program's file": {lockFacts(time.Hour, badLock(garbage)), want{
			state: Unreadable, cause: "malformed", when: Blocked, by: "a file in its place that is no record", flags: IsBlocked, stuck: true, exit: 7,
			next: why, says: []string{"It counts as held: a person must look at it."},
		}},
		"a symlink": {lockFacts(0, badLock(symlink)), want{
			state: Unreadable, cause: "not-regular", when: Blocked, by: "a symlink", flags: IsBlocked, stuck: true, exit: 7,
			says: []string{"A symlink is in its place. Nothing touches it"},
		}},
		"a symlink beside a malformed token": {lockFacts(0, badLock(symlink), with(youngToken)), want{
			state: Unreadable, cause: "not-regular", when: Blocked, by: "a symlink", flags: IsBlocked, stuck: true, exit: 7,
		}},
		"nobody looked": {&LockFacts{}, want{state: Unknown, when: Blocked, by: "nobody having looked", flags: IsBlocked, stuck: true, exit: 5}},
	} {
		t.Run(name, func(t *testing.T) { check(t, tc.f.Judge(now), tc.w) })
	}
}

func TestLockEvidenceTellsWhatDecides(t *testing.T) {
	f := lockFacts(80*time.Second, lockOn("web02"), with(tokenFacts(time.Minute)), func(f *LockFacts) {
		f.File.ModTime, f.Booted = now.Add(-4*time.Second), true
	})
	v := f.Judge(now)
	for name, part := range map[string]string{
		"heartbeat": "80s ago, by the boot-time clock, file written 4s ago; both count, the limit is 75s",
		"held":      "for 3m 0s",
		"clock":     "its heartbeat and the file's time are over a minute apart",
		"token":     "token alive of pid 4242",
	} {
		if got := saw(v, name); !strings.Contains(got, part) {
			t.Errorf("%s: %q, want %q", name, got, part)
		}
	}
	v = lockFacts(time.Second, badLock(torn), func(f *LockFacts) { f.Writers = []int{31, 32} }).Judge(now)
	if got := saw(v, "writer"); got != "pid 31 has it open for writing or flocked; pid 32 has it open for writing or flocked" {
		t.Errorf("writers: %q", got)
	}
	if got := saw(v, "token"); got != "none" {
		t.Errorf("token: %q", got)
	}
	if got := saw(v, "file"); got != "no record: ends too early at byte 112; last written 1s ago" {
		t.Errorf("file: %q", got)
	}
}
