package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"holdfast/fslock/verdict"
)

// TestOneOfManyProcessesWins lets several processes claim at the same instant, hundreds of times: one wins, and every
// epoch is larger than all before it, however the last holder went away.
func TestOneOfManyProcessesWins(t *testing.T) {
	rounds, claimants := 300, 4
	if testing.Short() {
		rounds = 30
	}
	s := &Store{Dir: t.TempDir()}
	children := make([]*child, claimants)
	for i := range children {
		children[i] = startChild(t)
	}
	var last uint64
	for round := range rounds {
		at := time.Now().Add(3 * time.Millisecond)
		for i, c := range children {
			c.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: other(fmt.Sprintf("owner-%d", i)), At: at})
		}
		winner := -1
		for i, c := range children {
			switch a := c.receive(); {
			case a.Err == "" && winner >= 0:
				t.Fatalf("round %d: %d and %d have won", round, winner, i)
			case a.Err == "":
				winner = i
				if a.Epoch <= last {
					t.Fatalf("round %d: epoch %d after %d", round, a.Epoch, last)
				}
				last = a.Epoch
			case !slices.Equal(a.Is, []string{"held"}):
				t.Fatalf("round %d: %+v", round, a)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody has won", round)
		}
		if round%25 == 24 {
			// The next round finds a dead holder instead of a free lease.
			children[winner].kill()
			children[winner] = startChild(t)
			continue
		}
		if a := children[winner].call(order{Do: "release", Dir: s.Dir, ID: agent}); a.Err != "" {
			t.Fatalf("round %d: %+v", round, a)
		}
	}
	if got := readCount(t, s); got != fmt.Sprintf("%d\n", last) {
		t.Errorf("the counter is %q after epoch %d", got, last)
	}
}

// TestClaimDelayedBetweenReadingAndWriting holds a claimant after it has read, decided and counted: another one must
// not decide by what that one is about to change.
func TestClaimDelayedBetweenReadingAndWriting(t *testing.T) {
	for _, step := range []string{"entered", "counted"} {
		t.Run(step, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			slow := startChild(t)
			slow.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1"), Step: step, Fault: "wait"})
			if a := slow.receive(); a.At != step {
				t.Fatalf("%+v", a)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := s.Claim(ctx, agent, other("owner-b")); !errors.Is(err, ErrBusy) {
				t.Fatalf("claimed: %v", err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := s.Claim(t.Context(), agent, other("owner-b"))
				got <- err
			}()
			slow.send(order{Do: "go"})
			if a := slow.receive(); a.Err != "" || a.Epoch != 1 {
				t.Errorf("%+v", a)
			}
			if err := <-got; !errors.Is(err, ErrHeld) {
				t.Errorf("the claimant that waited: %v", err)
			}
		})
	}
}

// TestRenewalDelayedWhileTheLeaseRunsOut holds a renewal between its check and its write: nobody may take the lease
// in between, and have it taken away again by the write.
func TestRenewalDelayedWhileTheLeaseRunsOut(t *testing.T) {
	s := &Store{Dir: t.TempDir(), TTL: 1}
	slow := startChild(t)
	slow.claim(s.Dir, agent, sameOwner("block-1"))
	slow.send(order{Do: "renew", Dir: s.Dir, ID: agent, Step: "owned", Fault: "wait"})
	slow.receive()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Claim(ctx, agent, other("owner-b")); !errors.Is(err, ErrBusy) {
		t.Fatalf("claimed: %v", err)
	}
	slow.send(order{Do: "go"})
	if a := slow.receive(); a.Err != "" {
		t.Error(a.Err)
	}
	l := granted(t, s, other("owner-b"), 2)
	if a := slow.call(order{Do: "renew", Dir: s.Dir, ID: agent}); !slices.Equal(a.Is, []string{"lost"}) {
		t.Errorf("%+v", a)
	}
	mine(t, l)
}

// TestKilledAtEveryStep kills a process in the middle of each change: the next one gets in, and no epoch comes again.
func TestKilledAtEveryStep(t *testing.T) {
	for _, tc := range []struct {
		do, step string
		state    verdict.State
		epoch    uint64 // of the next claim
	}{
		{"claim", "entered", verdict.Free, 1},
		{"claim", "counted", verdict.Free, 2},
		{"renew", "entered", verdict.Dead, 2},
		{"renew", "owned", verdict.Dead, 2},
		{"release", "entered", verdict.Dead, 2},
		{"release", "removing", verdict.Dead, 2},
	} {
		t.Run(tc.do+" "+tc.step, func(t *testing.T) {
			s := &Store{Dir: t.TempDir()}
			c := startChild(t)
			if tc.do != "claim" {
				c.claim(s.Dir, agent, sameOwner("block-1"))
			}
			c.send(order{Do: tc.do, Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1"), Step: tc.step, Fault: "kill"})
			c.dies()
			info, err := s.Inspect(agent)
			if err != nil || info.Verdict.State != tc.state || info.Verdict.Claimable.When != verdict.Now {
				t.Fatalf("%v, claimable %v (%v)", info.Verdict.State, info.Verdict.Claimable.When, err)
			}
			granted(t, s, other("owner-b"), tc.epoch)
			if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != 3 {
				t.Errorf("%d files (%v)", len(entries), err)
			}
		})
	}
	t.Run("again and again, epochs grow", func(t *testing.T) {
		s := &Store{Dir: t.TempDir()}
		var last uint64
		for i := range 12 {
			c := startChild(t)
			c.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: other(fmt.Sprint(i)), Step: []string{"entered", "counted"}[i%2], Fault: "kill"})
			c.dies()
			l, err := s.Claim(t.Context(), agent, other("owner-b"))
			if err != nil || l.Epoch() <= last {
				t.Fatalf("epoch %d after %d (%v)", l.Epoch(), last, err)
			}
			last = l.Epoch()
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFlockFileReplacedWhileWaitedFor takes away the flock file between its opening and the lock: whoever comes next
// locks the new one, so that the old one keeps nobody out.
func TestFlockFileReplacedWhileWaitedFor(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"by another file": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"by nothing": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			entered := 0
			s.fault = func(step string) error {
				if step != "entered" {
					return nil
				}
				if entered++; entered == 1 {
					return replace(s.path(agent, sectionSuffix))
				}
				return nil
			}
			granted(t, s, sameOwner("block-1"), 1)
			if entered != 2 {
				t.Errorf("entered %d times", entered)
			}
		})
	}
	t.Run("while another one is inside the new one", func(t *testing.T) {
		s := &Store{Dir: t.TempDir()}
		first, second := startChild(t), startChild(t)
		first.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: other("owner-1"), Step: "entered", Fault: "wait"})
		first.receive()
		if err := os.Remove(s.path(agent, sectionSuffix)); err != nil {
			t.Fatal(err)
		}
		second.send(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: other("owner-2"), Step: "counted", Fault: "wait"})
		second.receive()
		// Both hold a lock now. The first finds that its own is worth nothing, and waits.
		first.send(order{Do: "go"})
		second.send(order{Do: "go"})
		if a := second.receive(); a.Err != "" {
			t.Errorf("%+v", a)
		}
		// It may enter again and wait for its next order there.
		a := first.receive()
		if a.At == "entered" {
			first.send(order{Do: "go"})
			a = first.receive()
		}
		if !slices.Equal(a.Is, []string{"held"}) {
			t.Errorf("%+v", a)
		}
	})
}

func TestFaultsBetweenTheStepsAreTold(t *testing.T) {
	broken := errors.New("broken")
	at := ""
	s := store(t)
	s.fault = func(step string) error {
		if step == at {
			return broken
		}
		return nil
	}
	check := func(op string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, broken) || e.Op != op || e.ID != agent || e.Path == "" {
			t.Errorf("%s at %q: %v", op, at, err)
		}
	}
	for _, at = range []string{"entered", "counted"} {
		_, err := s.Claim(t.Context(), agent, sameOwner("block-1"))
		check("claim", err)
	}
	at = ""
	l := granted(t, s, sameOwner("block-1"), 2) // an epoch that was counted is used up
	for _, at = range []string{"entered", "owned"} {
		check("renew", l.Renew(t.Context()))
	}
	for _, at = range []string{"entered", "removing"} {
		check("release", l.Release())
	}
	at = ""
	if err := l.Verify(t.Context()); err != nil {
		t.Errorf("a release that failed has taken it away: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestClaimBetweenTheTwoReadsOfALook(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	other := &Store{Dir: s.Dir}
	if err := granted(t, other, Claimant{}, 1).Release(); err != nil {
		t.Fatal(err)
	}
	s.fault = func(step string) error {
		if step == "looked" {
			granted(t, other, Claimant{}, 2)
		}
		return nil
	}
	info, err := s.Inspect(agent)
	if err != nil || info.Verdict.Flags.Has(verdict.EpochFlag) {
		t.Errorf("counter %+v, record %+v (%v)", info.Facts.Counter, info.Facts.Record, err)
	}
}
