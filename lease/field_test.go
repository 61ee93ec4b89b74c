package lease

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Each test here is a case from the field, on a made-up machine; field_linux_test.go has those for which there are
// real processes.

const sec = time.Second

func TestUpgradedBuildIsRefusedByName(t *testing.T) {
	s := store(t)
	putLease(t, s, 3*sec)
	putCounter(t, s, "5\n")
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec, says: []string{"Held. pid 4242 runs and renewed 3s ago"}})
	e := refusal(t, s, other("owner-b"))
	h := e.Holder
	if h == nil || h.PID != holderPID || h.Channel != "local-main-aaaaaa-bbbbbbbb" || h.Version != "0.57.4" || h.OwnerBootID != "owner-a" || h.BlockID != "block-1" || h.Epoch != 5 {
		t.Fatalf("refused because of %+v", h)
	}
	if e.SameOwner || e.Op != "claim" || e.ID != agent || e.Path != s.path(agent, leaseSuffix) {
		t.Errorf("refused as %+v", e)
	}
	for _, part := range []string{
		"claim lease agent-1", "pid 4242 on vm", "channel local-main-aaaaaa-bbbbbbbb", "version 0.57.4", "block block-1", "for 3m3s", "holdfast why agent-1",
	} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("the refusal does not say %q: %v", part, e)
		}
	}
	if got := time.Until(e.Verdict.Claimable.At); got < 10*sec || got > 12*sec {
		t.Errorf("free in %v at the earliest", got)
	}
}

func TestKilledHolderIsReplacedAtOnce(t *testing.T) {
	for name, mod := range map[string]func(*record.Lease){"AgentMux": func(*record.Lease) {}, "our own build": asOurs} {
		t.Run(name, func(t *testing.T) {
			var log logged
			s := store(t)
			s.Log = log.logger()
			putLease(t, s, 2*sec, mod, byPID(deadPID), func(r *record.Lease) { r.Ours.PidfdIno, r.Ours.PIDStartTicks = 0, 0 })
			putCounter(t, s, "5\n")
			inspect(t, s, want{state: verdict.Dead, cause: "gone", when: verdict.Now, says: []string{"no process 999999", "nothing to do"}})
			l := granted(t, s, other("owner-b"), 6)
			if l.ClaimID() == "claim-a" || readCount(t, s) != "6\n" {
				t.Errorf("claim id %s, counter %q", l.ClaimID(), readCount(t, s))
			}
			if got := log.lines(); len(got) != 1 || !strings.HasPrefix(got[0], `level=WARN msg="reclaimed lease" id=agent-1 state=dead cause=gone pid=999999`) {
				t.Errorf("logged %q", got)
			}
			mine(t, l)
		})
	}
}

func TestJulyFormat(t *testing.T) {
	s := store(t)
	r := putLease(t, s, 4*sec, julyFormat, byPID(1))
	// Seven fields only, as that build wrote them.
	put(t, s, leaseSuffix, fmt.Appendf(nil, `{"instance_id":"agent-1","owner_boot_id":"owner-a","block_id":"block-1","session_id":null,"pid":1,"acquired_at_ms":%d,"renewed_at_ms":%d}`,
		r.AcquiredAtMS, r.RenewedAtMS), 4*sec)
	inspect(t, s, want{state: verdict.Unknown, when: verdict.At, in: 11 * sec, says: []string{"whether pid 1 lives"}})
	e := refusal(t, s, other("owner-b"))
	if h := e.Holder; h.Host != "" || h.Channel != "" || h.Version != "" || h.Epoch != 0 || h.ClaimID != "" {
		t.Errorf("made up for what is not recorded: %+v", h)
	}
	if !strings.Contains(e.Error(), "pid 1 on unknown, channel unknown, version unknown") {
		t.Errorf("refused: %v", e)
	}
	put(t, s, leaseSuffix, recorded(s, 16*sec, julyFormat, byPID(1)).Encode(), 16*sec)
	inspect(t, s, want{state: verdict.Expired, when: verdict.Now})
	granted(t, s, other("owner-b"), 1)
}

func TestJulyFormatNeedsTheFileTimeToo(t *testing.T) {
	s := store(t)
	put(t, s, leaseSuffix, recorded(s, 16*sec, julyFormat).Encode(), 4*sec)
	inspect(t, s, want{state: verdict.Unknown, when: verdict.At, in: 11 * sec})
	refused(t, s, other("owner-b"), "held")
}

func TestSecondPane(t *testing.T) {
	t.Run("another block of the same owner is refused", func(t *testing.T) {
		s := store(t)
		putLease(t, s, 4*sec)
		putCounter(t, s, "5\n")
		e := refusal(t, s, sameOwner("block-2"))
		if !e.SameOwner || !strings.Contains(e.Error(), "the same AgentMux process") {
			t.Errorf("refused: %v", e)
		}
	})
	t.Run("even when its process is gone, until it runs out", func(t *testing.T) {
		s := store(t)
		putLease(t, s, 4*sec, byPID(deadPID))
		if e := refusal(t, s, sameOwner("block-2")); !e.SameOwner {
			t.Errorf("refused: %v", e)
		}
		putLease(t, s, 16*sec, byPID(deadPID))
		granted(t, s, sameOwner("block-2"), 6)
	})
	t.Run("after expiry with a new epoch", func(t *testing.T) {
		s := store(t)
		putLease(t, s, 16*sec)
		granted(t, s, sameOwner("block-2"), 6)
	})
	t.Run("the same block again fences the older handle", func(t *testing.T) {
		s := store(t)
		first := granted(t, s, sameOwner("block-1"), 1)
		second := granted(t, s, sameOwner("block-1"), 1)
		if first.ClaimID() == second.ClaimID() {
			t.Fatal("both have the same claim id")
		}
		lost(t, first, "owner-a")
		if !isClosed(first.Lost()) {
			t.Error("the loss was not told")
		}
		mine(t, second)
	})
}

func TestRelayThatStillRefusesLooksElsewhere(t *testing.T) {
	s := store(t)
	putCounter(t, s, "7\n")
	writesNothing(t, s.Dir, func() {
		info := inspect(t, s, want{state: verdict.Free, when: verdict.Now, says: []string{
			"Nobody holds it. Last epoch 7.", "the cause is not in this directory",
		}})
		if info.Epoch != 7 || info.Raw != nil || info.Facts.Holder() != nil {
			t.Errorf("%+v", info)
		}
		if infos, err := s.List(t.Context()); err != nil || len(infos) != 1 || infos[0].Verdict.State != verdict.Free {
			t.Errorf("listed %+v (%v)", infos, err)
		}
		if h, err := s.LiveHolder(agent, "owner-b"); h != nil || err != nil {
			t.Errorf("held by %+v (%v)", h, err)
		}
	})
	granted(t, s, other("owner-b"), 8)
}

func TestSleptAndOvertaken(t *testing.T) {
	s := store(t)
	putCounter(t, s, "2\n")
	a := granted(t, s, sameOwner("block-1"), 3)
	putLease(t, s, sec, withEpoch(4), func(r *record.Lease) { r.OwnerBootID, r.ClaimID = "owner-b", "claim-b" })
	putCounter(t, s, "4\n")
	lost(t, a, "owner-b")
	if !isClosed(a.Lost()) {
		t.Error("the loss was not told")
	}
	if err := a.Verify(t.Context()); !strings.Contains(err.Error(), "lease is lost to pid 4242") {
		t.Errorf("lost: %v", err)
	}
}

func TestSleptAlone(t *testing.T) {
	s := store(t)
	a := granted(t, s, sameOwner("block-1"), 1)
	r := readLease(t, s)
	r.RenewedAtMS -= 40_000
	r.Ours.BeatBootMS = 0
	put(t, s, leaseSuffix, r.Encode(), 40*sec)
	inspect(t, s, want{state: verdict.Expired, when: verdict.Now, flags: verdict.Mine})
	if err := a.Verify(t.Context()); err != nil {
		t.Errorf("nobody took it over: %v", err)
	}
	mine(t, a)
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, flags: verdict.Mine})
}

func TestTornWrite(t *testing.T) {
	s := store(t)
	putCounter(t, s, "5\n")
	put(t, s, leaseSuffix, []byte(`{"instance_id":"`), 5*sec)
	inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.At, in: 10 * sec, says: []string{"Torn at byte 16. Honoured for 10s more"}})
	if e := refusal(t, s, other("owner-b")); e.Holder != nil || e.SameOwner {
		t.Errorf("a file that nobody can read is held by %+v", e.Holder)
	}
	if h, err := s.LiveHolder(agent, "owner-b"); err != nil || h == nil || *h != (verdict.Holder{}) {
		t.Errorf("looked up: %+v (%v)", h, err)
	}
	put(t, s, leaseSuffix, []byte(`{"instance_id":"`), 16*sec)
	inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.Now})
	if h, err := s.LiveHolder(agent, "owner-b"); h != nil || err != nil {
		t.Errorf("looked up: %+v (%v)", h, err)
	}
	var log logged
	s.Log = log.logger()
	granted(t, s, other("owner-b"), 6)
	if got := log.lines(); !slices.Equal(got, []string{`level=WARN msg="reclaimed lease" id=agent-1 state=unreadable cause=malformed`}) {
		t.Errorf("logged %q", got)
	}
}

func TestStrictness(t *testing.T) {
	s := store(t)
	putCounter(t, s, "5\n")
	good := string(recorded(s, 3*sec).Encode())
	swap := func(old, new string) []byte {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%d times %q in\n%s", strings.Count(good, old), old, good)
		}
		return []byte(strings.Replace(good, old, new, 1))
	}
	for name, data := range map[string][]byte{
		"duplicate key":         swap(`"epoch": 5`, `"epoch": 5, "pid": 4242`),
		"null for a number":     swap(`"epoch": 5`, `"epoch": null`),
		"wrong case":            swap(`"pid":`, `"PID":`),
		"trailing NULs":         append([]byte(good), 0, 0, 0),
		"byte order mark":       append([]byte("\xef\xbb\xbf"), good...),
		"a float":               swap(`"epoch": 5`, `"epoch": 5.0`),
		"lone surrogate":        swap(`"0.57.4"`, `"\ud800"`),
		"a second document":     append([]byte(good), "{}"...),
		"invalid UTF-8":         swap(`"0.57.4"`, "\"\xff\""),
		"a string for a number": swap(`"pid": 4242`, `"pid": "4242"`),
		"missing key":           swap("  \"block_id\": \"block-1\",\n", ""),
		"larger than u32":       swap(`"pid": 4242`, `"pid": 4294967296`),
	} {
		t.Run(name, func(t *testing.T) {
			put(t, s, leaseSuffix, data, 3*sec)
			info := inspect(t, s, want{state: verdict.Unreadable, cause: "malformed", when: verdict.At, in: 12 * sec})
			if !bytes.Equal(info.Raw, data) {
				t.Errorf("the bytes are not shown: %q", info.Raw)
			}
			refused(t, s, other("owner-b"), "held")
		})
	}
	put(t, s, leaseSuffix, []byte(good), 3*sec)
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec})
}

func TestClockStepDoesNotKill(t *testing.T) {
	for _, moved := range []int64{1, -1, 2, -2} {
		s := store(t)
		putLease(t, s, 3*sec, startMoved(moved))
		info := inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec})
		refused(t, s, other("owner-b"), "held")
		if o := info.Verdict.Originals[0]; info.Facts.Proc.Under.Readable && o.Does != "takes it" {
			t.Errorf("AgentMux %s: %s", o.Does, o.Why)
		}
	}
}

func TestRecordOfAnotherBoot(t *testing.T) {
	if _, local := record.FileSystem(t.TempDir()); !local {
		unable(t, "temporary files do not lie on a local file system")
	}
	another := func(r *record.Lease) { asOurs(r); r.Ours.KernelBootID = "boot-0" }
	s := store(t)
	putLease(t, s, 2*time.Hour, another) // this machine was booted an hour ago
	inspect(t, s, want{state: verdict.Dead, cause: "reboot", when: verdict.Now, says: []string{"booted after pid 4242 was last heard of"}})
	putLease(t, s, 3*sec, another) // a machine that shares our disk and our name
	inspect(t, s, want{state: verdict.Remote, when: verdict.At, in: 12 * sec})
	refused(t, s, other("owner-b"), "held")
	putLease(t, s, 2*time.Hour, another)
	granted(t, s, other("owner-b"), 6)
}

func TestNoPidIsRecorded(t *testing.T) {
	s := store(t)
	putLease(t, s, 3*sec, byPID(0))
	inspect(t, s, want{state: verdict.Unknown, when: verdict.At, in: 12 * sec})
	refused(t, s, other("owner-b"), "held")
}

func TestStartTicksCountOnlyWithTheirTimeNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		timeNS uint64
		state  verdict.State
		cause  string
	}{
		"ours":       {2, verdict.Dead, "recycled"},
		"another":    {3, verdict.Live, ""},
		"none known": {0, verdict.Live, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			putLease(t, s, 3*sec, asOurs, func(r *record.Lease) {
				r.Ours.TimeNS, r.Ours.PIDStartTicks, r.Ours.PidfdIno = tc.timeNS, 6001, 0
			})
			info, err := s.Inspect(agent)
			if v := info.Verdict; err != nil || v.State != tc.state || v.Cause != tc.cause {
				t.Errorf("%v %s: %s (%v)", v.State, v.Cause, v.Sentence, err)
			}
		})
	}
}

func TestRecycledPid(t *testing.T) {
	// The process that has the pid now started three seconds ago, after the last renewal.
	s := store(t, holder(func(p *proctest.Proc) { p.Start, p.Name = 360_000-300, "postgres" }))
	putLease(t, s, 10*sec)
	inspect(t, s, want{state: verdict.Dead, cause: "recycled", when: verdict.Now, says: []string{"pid 4242 is now another process (postgres, started"}})
	granted(t, s, other("owner-b"), 6)
}

func TestClockSteppedByAnHour(t *testing.T) {
	s := store(t)
	putLease(t, s, 2*sec, startMoved(-3600))
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 13 * sec, flags: verdict.Clock})
	refused(t, s, other("owner-b"), "held")
}

func TestTurnGoesOnAfterExpiry(t *testing.T) {
	s := store(t)
	putLease(t, s, 60*sec, func(r *record.Lease) { r.Channel, r.Version = "", "" })
	inspect(t, s, want{state: verdict.Expired, when: verdict.Now, says: []string{"Ran out 45s ago", "pid 4242 still runs, so a turn may still be going on"}})
	if h, err := s.LiveHolder(agent, "owner-b"); h != nil || err != nil {
		t.Errorf("an expired lease has the live holder %+v (%v)", h, err)
	}
	granted(t, s, other("owner-b"), 6)
}

func TestDamagedCounter(t *testing.T) {
	for _, text := range []string{"x", "", "\x00\x00", "-1\n", "18446744073709551616\n", "5 6"} {
		t.Run(fmt.Sprintf("%q without a lease", text), func(t *testing.T) {
			s := store(t)
			putCounter(t, s, text)
			inspect(t, s, want{state: verdict.Free, when: verdict.Blocked, flags: verdict.IsBlocked | verdict.EpochFlag, says: []string{"No claim is granted"}})
			var err error
			writesNothing(t, s.Dir, func() { _, err = s.Claim(t.Context(), agent, other("owner-b")) })
			e, ok := errors.AsType[*EpochError](err)
			if !ok || !errors.Is(err, ErrEpoch) || e.Path != s.path(agent, counterSuffix) || !strings.Contains(err.Error(), "`holdfast epoch agent-1`") {
				t.Fatalf("refused: %v", err)
			}
			if _, ok := errors.AsType[*record.Error](err); !ok {
				t.Errorf("what is wrong with the counter is not told: %v", err)
			}
		})
		t.Run(fmt.Sprintf("%q beside a lease of epoch 9", text), func(t *testing.T) {
			s := store(t)
			putCounter(t, s, text)
			putLease(t, s, 2*sec, withEpoch(9))
			inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 13 * sec, flags: verdict.EpochFlag})
			putLease(t, s, 2*sec, withEpoch(9), byPID(deadPID))
			inspect(t, s, want{state: verdict.Dead, cause: "gone", when: verdict.Now, flags: verdict.EpochFlag})
			granted(t, s, other("owner-b"), 10)
			if got := readCount(t, s); got != "10\n" {
				t.Errorf("the counter is %q", got)
			}
		})
		t.Run(fmt.Sprintf("%q beside an old build's lease", text), func(t *testing.T) {
			s := store(t)
			putCounter(t, s, text)
			putLease(t, s, 20*sec, julyFormat)
			inspect(t, s, want{state: verdict.Expired, when: verdict.Blocked, flags: verdict.IsBlocked | verdict.EpochFlag})
			if _, err := s.Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, ErrEpoch) {
				t.Fatalf("refused: %v", err)
			}
		})
	}
}

func TestHolderHiddenFromUsIsAliveByItsPid(t *testing.T) {
	s := store(t, func(m *proctest.Machine) { m.HidesOthers = true }, holder(func(p *proctest.Proc) { p.Hidden = true }))
	putLease(t, s, 3*sec)
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec, flags: verdict.Legacy})
	refused(t, s, other("owner-b"), "held")
}

func TestSeenFromInsideAContainerOfTheSameName(t *testing.T) {
	s := store(t, func(m *proctest.Machine) { m.Initial, m.PIDNS = false, 77 })
	putLease(t, s, 3*sec, byPID(deadPID))
	inspect(t, s, want{state: verdict.Unknown, when: verdict.At, in: 12 * sec})
	refused(t, s, other("owner-b"), "held")
	putLease(t, s, 16*sec, byPID(deadPID))
	inspect(t, s, want{state: verdict.Expired, when: verdict.Now})
	granted(t, s, other("owner-b"), 6)
}

func TestSandboxSeenFromOutside(t *testing.T) {
	inside := func(inner int) func(*proctest.Machine) {
		return holder(func(p *proctest.Proc) { p.PID, p.NSpid, p.PIDNS = 50_123, []int{50_123, inner}, 88 })
	}
	t.Run("its inner pid is nobody's here", func(t *testing.T) {
		s := store(t, inside(3))
		putLease(t, s, 3*sec, byPID(3))
		inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec, says: []string{"pid 50123 (3 in its own namespace) runs"}})
		refused(t, s, other("owner-b"), "held")
	})
	t.Run("its inner pid is another's here", func(t *testing.T) {
		s := store(t, inside(selfPID))
		putLease(t, s, 3*sec, byPID(selfPID))
		inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 12 * sec})
		refused(t, s, other("owner-b"), "held")
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	s := store(t)
	first := &Store{Dir: s.Dir, Table: tableOf(holderPID)}
	l, err := first.Claim(t.Context(), agent, sameOwner("block-1"))
	if err != nil {
		t.Fatal(err)
	}
	if e := refusal(t, s, sameOwner("block-1")); !e.SameOwner || e.Holder.PID != holderPID {
		t.Errorf("refused: %v", e)
	}
	mine(t, l)
	gone := &Store{Dir: s.Dir, Table: tableOf(selfPID, func(m *proctest.Machine) { m.Procs = m.Procs[:1] })}
	granted(t, gone, sameOwner("block-1"), 2)
	lost(t, l, "owner-a")
}

func TestCounterRestoredFromABackup(t *testing.T) {
	s := store(t)
	putCounter(t, s, "8\n")
	l := granted(t, s, sameOwner("block-1"), 9)
	putCounter(t, s, "3\n")
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, flags: verdict.Mine | verdict.EpochFlag})
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if got := readCount(t, s); got != "9\n" {
		t.Errorf("released with the counter at %q", got)
	}
	granted(t, s, other("owner-b"), 10)
}

func TestOtherPidNamespaceUnderTheSameHostName(t *testing.T) {
	for name, condition := range map[string]proc.Condition{"alive": proc.Running, "stopped": proc.Stopped} {
		t.Run(name, func(t *testing.T) {
			// From inside, the holder's number is another's or nobody's, however it stands outside.
			inner := func(m *proctest.Machine) {
				m.Initial, m.PIDNS = false, 77
				m.Procs[1].Condition = condition
				m.Procs[1].Start += 100
			}
			s := store(t, inner)
			putLease(t, s, 3*sec, asOurs, func(r *record.Lease) { r.Ours.PidfdIno = 99 })
			inspect(t, s, want{state: verdict.Unknown, when: verdict.At, in: 12 * sec, says: []string{"another pid namespace"}})
			refused(t, s, other("owner-b"), "held")
		})
	}
}

func TestBadIDs(t *testing.T) {
	for _, id := range []string{
		"", ".", "..", "a/b", `..\x`, "a\x00b", strings.Repeat("x", 300), strings.Repeat("x", 201), "CON", "con", "aux.txt", "LPT¹", "com9", "nul .x",
		"CONOUT$", ".hidden", "/", `\`, "a\nb", "\x1b[2J", "\u009b2J", "a\x7f", "../../etc/passwd",
	} {
		s := store(t)
		writesNothing(t, s.Dir, func() {
			_, claim := s.Claim(t.Context(), id, other("owner-b"))
			_, look := s.Inspect(id)
			_, handle := s.Handle(id, "claim-a")
			_, holder := s.LiveHolder(id, "owner-b")
			for op, err := range map[string]error{"claim": claim, "inspect": look, "handle": handle, "look up": holder, "check": CheckID(id)} {
				e, ok := errors.AsType[*IDError](err)
				if !ok || !errors.Is(err, ErrBadID) || e.Op != op || e.ID != id || e.Reason == "" || !strings.HasPrefix(err.Error(), op+" lease ") {
					t.Errorf("%s of %q: %v", op, id, err)
				}
			}
		})
		if _, err := os.Stat(s.Dir + "/../" + agent + leaseSuffix); err == nil {
			t.Error("something was written outside")
		}
	}
	for _, id := range []string{"a", strings.Repeat("x", 200), "CONSOLE", "com0", "com10", "agent 1", "ünïcödé", "a.b", "a..b", "-x", "a:b", "\xff"} {
		if err := CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}
