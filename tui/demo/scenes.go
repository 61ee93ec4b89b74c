package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
)

// fate is what becomes of a scenario's process once its entries stand on disk.
type fate uint8

const (
	stays   fate = iota // runs on
	leaves              // ends by itself, holding nothing
	stopped             // SIGSTOP
	killed              // SIGKILL, and reaped
)

// scene is a scenario and how it is played: lay runs in a process of its own.
type scene struct {
	Scenario
	fate  fate
	reaps bool // its process has a zombie to reap before it goes
	lay   func(context.Context, *holder) error
}

const leasesDir = "leases"

// scenes returns what can be played on this system.
func scenes() []scene {
	all := []scene{
		{
			Scenario{"live", "A process holds an agent's lease and a lock, and renews both."},
			stays, false, layLive,
		},
		{
			Scenario{"late", "A running process beats too seldom: its lease is late now and then, its lock for ever."},
			stays, false, layLate,
		},
		{
			Scenario{"long", "A lock held for over ten minutes, in good order: a note, no alarm."},
			stays, false, layLong,
		},
		{
			Scenario{"legacy", "A lock known by its pid alone, without heartbeat: it cannot be proved dead."},
			stays, false, layLegacy,
		},
		{
			Scenario{"expired", "A process stopped renewing its lease and runs on; another machine fell silent with a lock."},
			stays, false, layExpired,
		},
		{
			Scenario{"stopped", "A stopped process: its lock is stuck until it goes on or dies, its lease runs out."},
			stopped, false, layLive,
		},
		{
			Scenario{"inside", "A process stopped in a lease's critical section: nobody can claim the lease."},
			stopped, false, layInside,
		},
		{
			Scenario{"killed", "The holder was killed: whoever comes next takes the lease and the lock."},
			killed, false, layHeld,
		},
		{
			Scenario{"zombie", "The holder has exited and its parent has not reaped it: as good as gone."},
			stays, true, layZombie,
		},
		{
			Scenario{"recycled", "The recorded pid belongs to another process by now."},
			stays, false, layRecycled,
		},
		{
			Scenario{"blocked", "The holder of a lock is gone, but a token of an unknown machine keeps all others out."},
			killed, false, layBlocked,
		},
		{
			Scenario{"remote", "Held on another machine, which renews."},
			stays, false, layRemote,
		},
		{
			Scenario{"silent", "Held on another machine, which fell silent: both run out about ten seconds after the start."},
			leaves, false, laySilent,
		},
		{
			Scenario{"unknown", "Held in another pid namespace: nobody can tell from here whether the holder runs."},
			stays, false, layUnknown,
		},
		{
			Scenario{"unreadable", "A lease that was torn while it was written, and a symlink in a lock's place."},
			leaves, false, layUnreadable,
		},
		{
			Scenario{"litter", "A temp file whose process died before its lock was made."},
			leaves, false, layLitter,
		},
		{
			Scenario{"free", "A lease that nobody holds; its epoch counter stays."},
			leaves, false, layFree,
		},
	}
	here := all[:0]
	for _, s := range all {
		if canStop || s.fate != stopped && !s.reaps {
			here = append(here, s)
		}
	}
	return here
}

func find(name string) (scene, error) {
	for _, s := range scenes() {
		if s.Name == name {
			return s, nil
		}
	}
	return scene{}, fmt.Errorf("unknown scenario %q", name)
}

// leaseID is the id of a scenario's lease.
func leaseID(name string) string { return name + "-agent" }

// checkout is the working copy that a scenario's locks belong to. It does not exist.
func checkout(name string) string { return "/home/you/" + name + "-app" }

// key is the folder name under which AFT keeps what belongs to a scenario's checkout.
func key(name string) string {
	sum := sha256.Sum256([]byte(checkout(name)))
	return hex.EncodeToString(sum[:8])
}

// lockPath is where a scenario's lock lies: the three kinds that AFT has most of, by turns.
func lockPath(root, name string) string {
	places := [...][2]string{{"index", "cache.lock"}, {"inspect", "writer.lease"}, {"callgraph", "writer.lease"}}
	place := places[len(name)%len(places)]
	return filepath.Join(root, place[0], key(name), place[1])
}
