package lease

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/verdict"
)

// paused lets a store stop at a step until go on is closed; reached is closed when it gets there.
func paused(s *Store, at string) (reached, goOn chan struct{}) {
	reached, goOn = make(chan struct{}), make(chan struct{})
	done := false // a step is passed by one call at a time
	s.fault = func(step string) error {
		if step == at && !done {
			done = true
			close(reached)
			<-goOn
		}
		return nil
	}
	return reached, goOn
}

// meanwhile starts a call that has to wait for the critical section.
func meanwhile(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func TestHolderRenewsBetweenLookAndRemoval(t *testing.T) {
	for name, force := range map[string]bool{"unforced": false, "forced": true} {
		t.Run(name, func(t *testing.T) {
			holds, log := store(t), auditLog(t)
			l := granted(t, holds, sameOwner("block-1"), 1)
			r := readLease(t, holds)
			r.RenewedAtMS, r.Ours.BeatBootMS = r.RenewedAtMS-16_000, 0
			put(t, holds, leaseSuffix, r.Encode(), 16*sec)
			s := &Store{Dir: holds.Dir, Table: tableOf(holderPID)}
			info := inspect(t, s, want{state: verdict.Expired, when: verdict.Now})

			reached, goOn := paused(holds, "owned")
			renewed := meanwhile(func() error { return l.Renew(t.Context()) })
			<-reached
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := s.Break(ctx, info, Removal{Reason: "why", Force: force, Log: log}); !errors.Is(err, ErrBusy) {
				t.Fatalf("in the middle of a renewal: %v", err)
			}
			done := meanwhile(func() error { return s.Break(t.Context(), info, Removal{Reason: "why", Force: force, Log: log}) })
			close(goOn)
			if err := <-renewed; err != nil {
				t.Fatal(err)
			}
			err := <-done
			if !force {
				if !errors.Is(err, ErrNotYet) || len(audited(t, log)) != 0 {
					t.Errorf("it was renewed: %v", err)
				}
				mine(t, l)
				return
			}
			if err != nil {
				t.Fatalf("it is the claim that was looked at: %v", err)
			}
			if e := audited(t, log)[0]; !bytes.Contains(e.Before, []byte(l.ClaimID())) || bytes.Equal(e.Before, info.Raw) {
				t.Errorf("the log does not have the renewed bytes: %s", e.Before)
			}
			b := granted(t, s, other("owner-b"), 2)
			lost(t, l, "owner-b")
			if !isClosed(l.Lost()) {
				t.Error("the loss was not told")
			}
			mine(t, b)
		})
	}
}

func TestBreakMeetsAClaim(t *testing.T) {
	t.Run("that is in the middle", func(t *testing.T) {
		claims, log := store(t), auditLog(t)
		putLease(t, claims, sec, byPID(deadPID))
		s := &Store{Dir: claims.Dir, Table: tableOf(holderPID)}
		info := look(t, s)
		reached, goOn := paused(claims, "counted")
		var l *Lease
		claimed := meanwhile(func() (err error) { l, err = claims.Claim(t.Context(), agent, other("owner-b")); return err })
		<-reached
		done := meanwhile(func() error { return s.Break(t.Context(), info, forced(log)) })
		close(goOn)
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "; it now names pid 1000") {
			t.Errorf("it is another's: %v", err)
		}
		mine(t, l)
	})
	t.Run("that comes in the middle", func(t *testing.T) {
		s, log := store(t), auditLog(t)
		putLease(t, s, sec)
		info := look(t, s)
		claims := &Store{Dir: s.Dir, Table: tableOf(holderPID)}
		reached, goOn := paused(s, "removing")
		done := meanwhile(func() error { return s.Break(t.Context(), info, forced(log)) })
		<-reached
		var l *Lease
		claimed := meanwhile(func() (err error) { l, err = claims.Claim(t.Context(), agent, other("owner-b")); return err })
		close(goOn)
		if err := errors.Join(<-done, <-claimed); err != nil {
			t.Fatal(err)
		}
		if l.Epoch() != 6 {
			t.Errorf("epoch %d", l.Epoch())
		}
		mine(t, l)
	})
}

func TestOneOfManyProcessesBreaks(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	s, log := &Store{Dir: t.TempDir()}, auditLog(t)
	children := []*child{startChild(t), startChild(t), startChild(t)}
	for round := range rounds {
		l := granted(t, s, other("owner-b"), uint64(round+1))
		at := time.Now().Add(3 * time.Millisecond)
		for _, c := range children {
			c.send(order{Do: "break", Dir: s.Dir, ID: agent, Force: true, Log: log.Path, At: at})
		}
		winners := 0
		for i, c := range children {
			switch a := c.receive(); {
			case a.Err == "":
				winners++
			case !slices.Equal(a.Is, []string{"changed"}):
				t.Fatalf("round %d: %d: %+v", round, i, a)
			}
		}
		if winners != 1 {
			t.Fatalf("round %d: %d have broken it", round, winners)
		}
		lost(t, l, "")
		if all := audited(t, log); len(all) != round+1 || all[round].Nonce != l.ClaimID() {
			t.Fatalf("round %d: %d entries", round, len(all))
		}
	}
	t.Run("that have all looked before", func(t *testing.T) {
		granted(t, s, other("owner-b"), uint64(rounds+1))
		info := look(t, s)
		var all [4]<-chan error
		for i := range all {
			all[i] = meanwhile(func() error { return s.Break(t.Context(), info, forced(log)) })
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
			t.Errorf("%d have broken it", winners)
		}
	})
}

func TestKilledInTheMiddleOfABreak(t *testing.T) {
	for _, tc := range []struct {
		do, step string
		entries  int
	}{
		{"break", "entered", 0},
		{"break", "judged", 0},
		{"break", "audited", 1},
		{"break", "removing", 1},
		{"restore", "entered", 1},
		{"restore", "audited", 2},
	} {
		t.Run(tc.do+" "+tc.step, func(t *testing.T) {
			s, log := &Store{Dir: t.TempDir()}, auditLog(t)
			l := granted(t, s, sameOwner("block-1"), 1)
			if tc.do == "restore" {
				broke(t, s, look(t, s), forced(log))
			}
			c := startChild(t)
			c.send(order{Do: tc.do, Dir: s.Dir, ID: agent, Step: tc.step, Fault: "kill", Force: true, Log: log.Path})
			c.dies()
			all := audited(t, log)
			if len(all) != tc.entries {
				t.Fatalf("%+v", all)
			}
			if tc.do == "break" {
				mine(t, l)
				broke(t, s, look(t, s), forced(log))
				return
			}
			lost(t, l, "")
			if a := startChild(t).call(order{Do: "restore", Dir: s.Dir, ID: agent, Log: log.Path}); a.Err != "" {
				t.Fatal(a.Err)
			}
			if err := l.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKeepFindsThatItsLeaseWasBroken(t *testing.T) {
	keep(t, func(k *keeping) {
		t, log := k.T, auditLog(k.T)
		k.wait(sec)
		s := k.another()
		broke(t, s, look(t, s), forced(log))
		b := granted(t, s, other("owner-b"), 2)
		k.held() // it is told at the next renewal
		k.wait(4*sec + time.Millisecond)
		if !isClosed(k.lease.Lost()) {
			t.Error("the loss was not told")
		}
		k.ends("lost")
		lost(t, k.lease, "owner-b")
		mine(t, b)
	})
}
