package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// real is a store of this very process, on this very machine.
func real(t *testing.T) *Store {
	t.Helper()
	s := &Store{Dir: t.TempDir()}
	put(t, s, sectionSuffix, nil, 0)
	return s
}

// signal refuses what would reach more than one process.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to signal: %d", pid)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// asAgentMux rewrites the lease as an original would have written it.
func asAgentMux(t *testing.T, s *Store, mods ...func(*record.Lease)) {
	t.Helper()
	r := readLease(t, s)
	r.Ours = record.Ours{}
	for _, mod := range mods {
		mod(&r)
	}
	put(t, s, leaseSuffix, r.Encode(), time.Since(verdict.Milli(r.RenewedAtMS)))
}

// both is a test that runs on a lease of our own build, and on one of AgentMux.
type both struct {
	*testing.T
	store    *Store
	child    *child
	agentMux bool
}

func forBoth(t *testing.T, test func(b both)) {
	t.Helper()
	for name, agentMux := range map[string]bool{"our own build": false, "AgentMux": true} {
		t.Run(name, func(t *testing.T) { test(both{t, real(t), startChild(t), agentMux}) })
	}
}

// claimed lets the child claim.
func (b both) claimed() answer {
	b.Helper()
	a := b.child.claim(b.store.Dir, agent, sameOwner("block-1"))
	if b.agentMux {
		asAgentMux(b.T, b.store)
	}
	return a
}

func TestRealHolderRuns(t *testing.T) {
	forBoth(t, func(b both) {
		t, s, c := b.T, b.store, b.child
		a := b.claimed()
		inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, says: []string{fmt.Sprintf("pid %d runs", c.pid())}})
		if e := refusal(t, s, other("owner-b")); e.Holder.PID != uint32(c.pid()) || e.Holder.ClaimID != a.ClaimID {
			t.Errorf("refused because of %+v", e.Holder)
		}
		if e := refusal(t, s, sameOwner("block-1")); !e.SameOwner {
			t.Errorf("two of one name: %v", e)
		}
		for _, do := range []string{"verify", "renew", "release"} {
			if a := c.call(order{Do: do, Dir: s.Dir, ID: agent}); a.Err != "" {
				t.Error(a.Err)
			}
		}
		granted(t, s, other("owner-b"), 2)
	})
}

func TestRealHolderIsKilled(t *testing.T) {
	forBoth(t, func(b both) {
		t, s, c := b.T, b.store, b.child
		b.claimed()
		c.kill()
		inspect(t, s, want{state: verdict.Dead, cause: "gone", when: verdict.Now, says: []string{fmt.Sprintf("no process %d", c.pid())}})
		granted(t, s, sameOwner("block-1"), 2) // another process of one name gets another epoch
	})
}

func TestRealHolderIsAZombie(t *testing.T) {
	forBoth(t, func(b both) {
		t, s, c := b.T, b.store, b.child
		b.claimed()
		signal(t, c.pid(), syscall.SIGKILL) // and nobody reaps it
		eventually(t, "it is a zombie", func() bool {
			info, err := s.Inspect(agent)
			return err == nil && info.Verdict.State == verdict.Dead
		})
		inspect(t, s, want{state: verdict.Dead, cause: "zombie", when: verdict.Now, says: []string{fmt.Sprintf("its parent, pid %d", os.Getpid())}})
		granted(t, s, other("owner-b"), 2)
	})
}

func TestRealHolderIsStopped(t *testing.T) {
	forBoth(t, func(b both) {
		t, s, c := b.T, b.store, b.child
		b.claimed()
		signal(t, c.pid(), syscall.SIGSTOP)
		t.Cleanup(func() { _ = syscall.Kill(c.pid(), syscall.SIGCONT) })
		eventually(t, "it is stopped", func() bool {
			info, err := s.Inspect(agent)
			return err == nil && info.Verdict.State == verdict.Stopped
		})
		info := inspect(t, s, want{state: verdict.Stopped, when: verdict.At, in: 15 * sec})
		if cont := fmt.Sprintf("kill -CONT %d", c.pid()); info.Verdict.Next[0] != cont || !strings.Contains(info.Verdict.Sentence, cont) {
			t.Errorf("next %q: %s", info.Verdict.Next, info.Verdict.Sentence)
		}
		refused(t, s, other("owner-b"), "held")
		s.TTL = 1 // it has run out meanwhile
		inspect(t, s, want{state: verdict.Expired, when: verdict.Now, flags: verdict.StoppedFlag, says: []string{"a turn may go on when it continues"}})
		granted(t, s, other("owner-b"), 2)
		signal(t, c.pid(), syscall.SIGCONT)
		for _, do := range []string{"verify", "renew"} {
			if a := c.call(order{Do: do, Dir: s.Dir, ID: agent}); !slices.Equal(a.Is, []string{"lost"}) || a.HolderPID != uint32(os.Getpid()) {
				t.Errorf("%s: %+v", do, a)
			}
		}
		if a := c.call(order{Do: "release", Dir: s.Dir, ID: agent}); a.Err != "" {
			t.Error(a.Err)
		}
		inspect(t, s, want{state: verdict.Expired, when: verdict.Now, flags: verdict.Mine})
	})
}

func TestProcessStoppedInsideTheCriticalSection(t *testing.T) {
	t.Parallel()
	s := real(t)
	l := granted(t, s, other("owner-b"), 1)
	c := startChild(t)
	c.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1"), Step: "entered", Fault: "wait"})
	if a := c.receive(); a.At != "entered" {
		t.Fatalf("%+v", a)
	}
	t.Run("it runs", func(t *testing.T) {
		info := inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, flags: verdict.Mine})
		if !slices.ContainsFunc(info.Verdict.Evidence, func(e proc.Check) bool {
			return e.Name == "critical section" && strings.Contains(e.Saw, fmt.Sprintf("pid %d (", c.pid()))
		}) {
			t.Errorf("nothing tells who is inside: %+v", info.Verdict.Evidence)
		}
		busy(t, s, l, c.pid(), false)
	})
	signal(t, c.pid(), syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(c.pid(), syscall.SIGCONT) })
	t.Run("it is stopped", func(t *testing.T) {
		eventually(t, "it is stopped", func() bool {
			info, err := s.Inspect(agent)
			return err == nil && info.Verdict.Claimable.When == verdict.Blocked
		})
		began := time.Now()
		writesNothing(t, s.Dir, func() {
			info := inspect(t, s, want{state: verdict.Live, when: verdict.Blocked, flags: verdict.Mine | verdict.IsBlocked, says: []string{
				fmt.Sprintf("Every claim waits: pid %d (", c.pid()), "is stopped inside its critical section",
			}})
			if o := info.Verdict.Originals[0]; o.Does != "hangs" {
				t.Errorf("AgentMux %s: %s", o.Does, o.Why)
			}
			if infos, err := s.List(t.Context()); err != nil || len(infos) != 1 || !infos[0].Verdict.Flags.Has(verdict.IsBlocked) {
				t.Errorf("listed %+v (%v)", infos, err)
			}
			if h, err := s.LiveHolder(agent, "owner-a"); err != nil || h == nil {
				t.Errorf("looked up %+v (%v)", h, err)
			}
			if err := l.Verify(t.Context()); err != nil {
				t.Errorf("verify: %v", err)
			}
		})
		if took := time.Since(began); took > 5*sec {
			t.Errorf("looking took %v", took)
		}
		busy(t, s, l, c.pid(), true)
	})
	signal(t, c.pid(), syscall.SIGCONT)
	c.send(order{Do: "go"})
	if a := c.receive(); !slices.Equal(a.Is, []string{"held"}) {
		t.Errorf("the claim that was delayed: %+v", a)
	}
	mine(t, l)
}

// busy checks that claim, renewal and release end by their time and name who sits inside.
func busy(t *testing.T, s *Store, l *Lease, pid int, stopped bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, claim := s.Claim(ctx, agent, other("owner-c"))
	again, err := s.Handle(agent, l.ClaimID()) // to release for good is for the end of the test
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	release := again.Release()
	if took := time.Since(began); took < sec || took > 10*sec {
		t.Errorf("release took %v", took)
	}
	for op, err := range map[string]error{"claim": claim, "renew": l.Renew(ctx), "release": release} {
		e, ok := errors.AsType[*BusyError](err)
		if !ok || !slices.Equal(is(err), []string{"busy", "deadline"}) || e.Op != op || e.Path != s.path(agent, sectionSuffix) {
			t.Fatalf("%s: %v", op, err)
		}
		if len(e.Holders) != 1 || e.Holders[0].PID != pid || e.Holders[0].Stopped != stopped || e.Holders[0].Waiting {
			t.Errorf("%s: inside is %+v", op, e.Holders)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("inside is pid %d (", pid)) || strings.Contains(err.Error(), "kill -CONT") != stopped {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestClaimWithoutADeadlineWaitsFiveSeconds(t *testing.T) {
	t.Parallel()
	s := real(t)
	c := startChild(t)
	c.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1"), Step: "entered", Fault: "wait"})
	c.receive()
	began := time.Now()
	_, err := s.Claim(context.Background(), agent, other("owner-b"))
	if took := time.Since(began); took < 4900*time.Millisecond || took > 15*sec {
		t.Errorf("took %v", took)
	}
	if !slices.Equal(is(err), []string{"busy", "deadline"}) {
		t.Error(err)
	}
	began = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = s.Claim(ctx, agent, other("owner-b"))
	if took := time.Since(began); took > 4*sec || !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled after %v: %v", took, err)
	}
}

// unshared starts a child in a pid namespace of its own, with a /proc of its own.
func unshared(t *testing.T) *child {
	t.Helper()
	wrap := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		wrap = append(wrap, "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		unable(t, strings.Join(wrap, " "), ": ", err, ": ", string(out))
	}
	return startChild(t, wrap...)
}

func TestRealSandboxSeenFromOutside(t *testing.T) {
	for name, rewrite := range map[string]bool{"our own build": false, "AgentMux": true} {
		t.Run(name, func(t *testing.T) {
			s := real(t)
			c := unshared(t)
			c.claim(s.Dir, agent, sameOwner("block-1"))
			inner := readLease(t, s).PID
			if inner != 1 {
				t.Fatalf("inside it is pid %d", inner)
			}
			if rewrite {
				asAgentMux(t, s)
			}
			info := inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec, says: []string{"(1 in its own namespace) runs"}})
			outer := info.Facts.Proc.PID
			refused(t, s, other("owner-b"), "held")

			signal(t, outer, syscall.SIGSTOP)
			t.Cleanup(func() { _ = syscall.Kill(outer, syscall.SIGCONT) })
			eventually(t, "it is stopped", func() bool {
				info, err := s.Inspect(agent)
				return err == nil && info.Verdict.State == verdict.Stopped
			})
			signal(t, outer, syscall.SIGCONT)
			if a := c.call(order{Do: "renew", Dir: s.Dir, ID: agent}); a.Err != "" {
				t.Error(a.Err)
			}
			refused(t, s, other("owner-b"), "held")
		})
	}
}

func TestRealHolderSeenFromInsideASandbox(t *testing.T) {
	forBoth(t, func(b both) {
		t, s, outside := b.T, b.store, b.child
		inside := unshared(t)
		b.claimed()
		ask := order{Do: "inspect", Dir: s.Dir, ID: agent}
		for _, sig := range []syscall.Signal{0, syscall.SIGSTOP, syscall.SIGKILL} {
			signal(t, outside.pid(), sig)
			a := inside.call(ask)
			if a.State != "unknown" || a.When != "at" || a.Left <= 0 || a.Left > 15*sec {
				t.Fatalf("signal %d: %+v", sig, a)
			}
			claim := ask
			claim.Do, claim.Claimant = "claim", other("owner-b")
			writesNothing(t, s.Dir, func() {
				if a := inside.call(claim); !slices.Equal(a.Is, []string{"held"}) {
					t.Errorf("signal %d: %+v", sig, a)
				}
			})
			if h := inside.call(order{Do: "look-up", Dir: s.Dir, ID: agent, Claimant: other("owner-b")}); h.HolderPID != uint32(outside.pid()) {
				t.Errorf("signal %d: held by %+v", sig, h)
			}
		}
	})
}

func TestTwoSandboxesExcludeEachOther(t *testing.T) {
	s := real(t)
	a, b := unshared(t), unshared(t)
	a.claim(s.Dir, agent, sameOwner("block-1"))
	// Both are pid 1, of one name, under one host name.
	if got := b.call(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1")}); !slices.Equal(got.Is, []string{"held"}) {
		t.Fatalf("%+v", got)
	}
	if got := b.call(order{Do: "inspect", Dir: s.Dir, ID: agent}); got.State != "unknown" || slices.Contains(got.Flags, "mine") {
		t.Errorf("%+v", got)
	}
	if got := a.call(order{Do: "inspect", Dir: s.Dir, ID: agent}); got.State != "live" || !slices.Contains(got.Flags, "mine") {
		t.Errorf("%+v", got)
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// eventually waits for an outcome, with a bound that only what never comes reaches.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("never: ", what)
		}
	}
}
