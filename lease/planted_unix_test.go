//go:build unix

package lease

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// planted are the things that may stand where a file should be, and how to put them there.
var planted = map[string]func(p *site) error{
	"a dangling symlink":  func(p *site) error { return os.Symlink(p.victim+".missing", p.path) },
	"a symlink to a file": func(p *site) error { return os.Symlink(p.victim, p.path) },
	"a FIFO":              func(p *site) error { return syscall.Mkfifo(p.path, 0o600) },
	"a directory":         func(p *site) error { return os.Mkdir(p.path, 0o700) },
	"a socket": func(p *site) error {
		p.Chdir(p.store.Dir) // a socket's name must be short
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(p.path)})
		if err == nil {
			l.SetUnlinkOnClose(false)
			p.Cleanup(func() { _ = l.Close() })
		}
		return err
	},
	"a sparse file of 1 GiB": func(p *site) error {
		if err := os.WriteFile(p.path, nil, 0o600); err != nil {
			return err
		}
		return os.Truncate(p.path, 1<<30)
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a directory with a lease of ours in which something was planted, and the file that links point to.
type site struct {
	*testing.T
	store  *Store
	lease  *Lease
	path   string // of what was planted
	victim string
}

func plant(t *testing.T, what, suffix string, held bool) *site {
	t.Helper()
	p := &site{T: t, store: store(t)}
	putCounter(t, p.store, "5\n")
	if held {
		p.lease = granted(t, p.store, sameOwner("block-1"), 6)
	} else {
		p.lease, _ = p.store.Handle(agent, "claim-a")
	}
	p.path, p.victim = p.store.path(agent, suffix), filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(p.victim, recorded(p.store, 3*sec).Encode(), 0o600))
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, planted[what](p))
	return p
}

// calls makes every call there is, each within a time that a hang exceeds, and checks that neither the target of a
// link nor its directory was touched. Wants are the sentinels of each call's error; nil: any typed error.
func (p *site) calls(wants map[string][]string) {
	p.Helper()
	before := contents(p, filepath.Dir(p.victim))
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Second)
	defer cancel()
	for _, name := range []string{"inspect", "list", "look up", "verify", "renew", "claim", "release"} {
		call := map[string]func() error{
			"inspect": func() error { _, err := p.store.Inspect(agent); return err },
			"list":    func() error { _, err := p.store.List(ctx); return err },
			"look up": func() error { _, err := p.store.LiveHolder(agent, "owner-b"); return err },
			"verify":  func() error { return p.lease.Verify(ctx) },
			"renew":   func() error { return p.lease.Renew(ctx) },
			"claim":   func() error { _, err := p.store.Claim(ctx, agent, other("owner-b")); return err },
			"release": p.lease.Release,
		}[name]
		began := time.Now()
		err := call()
		if took := time.Since(began); took > time.Second {
			p.Errorf("%s took %v", name, took)
		}
		if got := is(err); !slices.Equal(got, wants[name]) || (err != nil) != (len(wants[name]) > 0) {
			p.Errorf("%s: %q, want %q: %v", name, got, wants[name], err)
		}
		if err != nil && !typed(err) {
			p.Errorf("%s: %T: %v", name, err, err)
		}
	}
	after := contents(p, filepath.Dir(p.victim))
	if len(after) != len(before) || after["victim"] != before["victim"] {
		p.Errorf("the target of the link was touched: %+v, was %+v", after, before)
	}
}

func typed(err error) bool {
	_, conflict := errors.AsType[*ConflictError](err)
	_, epoch := errors.AsType[*EpochError](err)
	_, io := errors.AsType[*IOError](err)
	return conflict || epoch || io
}

func (p *site) stays() {
	p.Helper()
	if st, err := os.Lstat(p.path); err != nil || st.Mode().IsRegular() && st.Size() != 1<<30 {
		p.Errorf("what was planted is gone: %v (%v)", st, err)
	}
}

func TestPlantedInPlaceOfTheLease(t *testing.T) {
	for what := range planted {
		t.Run(what, func(t *testing.T) {
			p := plant(t, what, leaseSuffix, false)
			cause := "not-regular"
			if what == "a sparse file of 1 GiB" {
				cause = "too-large"
			}
			writesNothing(t, p.store.Dir, func() {
				unreadable := []string{"unreadable"}
				p.calls(map[string][]string{
					"look up": unreadable, "verify": unreadable, "renew": unreadable, "claim": unreadable, "release": unreadable,
				})
				inspect(t, p.store, want{state: verdict.Unreadable, cause: cause, when: verdict.Blocked, flags: verdict.IsBlocked})
			})
			p.stays()
		})
	}
}

func TestPlantedInPlaceOfTheCounter(t *testing.T) {
	for what := range planted {
		t.Run(what+", nobody holds the lease", func(t *testing.T) {
			p := plant(t, what, counterSuffix, false)
			writesNothing(t, p.store.Dir, func() {
				p.calls(map[string][]string{"verify": {"lost"}, "renew": {"lost"}, "claim": {"epoch"}})
				inspect(t, p.store, want{state: verdict.Free, when: verdict.Blocked, flags: verdict.IsBlocked | verdict.EpochFlag})
			})
			p.stays()
		})
		t.Run(what+", a lease is held", func(t *testing.T) {
			p := plant(t, what, counterSuffix, true)
			wants := map[string][]string{"claim": {"held"}}
			if what != "a directory" {
				// A counter that is damaged is replaced before the lease that knows the epoch is removed.
				p.calls(wants)
				if got := readCount(t, p.store); got != "6\n" {
					t.Errorf("the counter is %q", got)
				}
				inspect(t, p.store, want{state: verdict.Free, when: verdict.Now})
				return
			}
			// It cannot be replaced, so the lease that knows the epoch stays.
			err := p.lease.Release()
			if e, ok := errors.AsType[*IOError](err); !ok || e.Op != "release" || e.Path != p.path {
				t.Errorf("released: %v", err)
			}
			if err := p.lease.Verify(t.Context()); err != nil {
				t.Errorf("verify: %v", err)
			}
			p.stays()
		})
	}
}

func TestPlantedInPlaceOfTheFlockFile(t *testing.T) {
	for what := range planted {
		t.Run(what, func(t *testing.T) {
			p := plant(t, what, sectionSuffix, true)
			if what == "a sparse file of 1 GiB" {
				// A flock file of any size is one: nobody reads it.
				p.calls(map[string][]string{"claim": {"held"}})
				p.stays()
				return
			}
			unreadable := []string{"unreadable"}
			writesNothing(t, p.store.Dir, func() {
				p.calls(map[string][]string{"renew": unreadable, "claim": unreadable, "release": unreadable})
				info := inspect(t, p.store, want{state: verdict.Live, when: verdict.Blocked, flags: verdict.Mine | verdict.IsBlocked, says: []string{"Nothing can be claimed: its flock file"}})
				if info.Facts.Section.Problem != record.NotRegular {
					t.Errorf("section %v", info.Facts.Section)
				}
			})
			p.stays()
			err := p.lease.Renew(t.Context())
			if e, ok := errors.AsType[*ConflictError](err); !ok || e.Path != p.path || e.Verdict.Sentence == "" {
				t.Errorf("renew: %v", err)
			}
		})
	}
}

func TestNothingIsBrokenThatIsNoFile(t *testing.T) {
	for what := range planted {
		t.Run(what, func(t *testing.T) {
			p, log := plant(t, what, leaseSuffix, false), auditLog(t)
			before := contents(t, filepath.Dir(p.victim))
			info := look(t, p.store)
			err := refusedBreak(t, p.store, info, forced(log), "unreadable")
			if e, ok := errors.AsType[*ConflictError](err); !ok || e.Verdict.Sentence == "" || e.Path != p.path {
				t.Error(err)
			}
			p.stays()
			// Nor is what was a lease when somebody looked at it.
			must(t, os.Remove(p.path))
			putLease(t, p.store, time.Hour)
			info = look(t, p.store)
			must(t, os.Remove(p.path))
			must(t, planted[what](p))
			unbroken(t, p.store, info, forced(log), "unreadable")
			p.stays()
			after := contents(t, filepath.Dir(p.victim))
			if len(after) != len(before) || after["victim"] != before["victim"] {
				t.Errorf("the target of the link was touched: %+v, was %+v", after, before)
			}
		})
	}
}

func TestPlantedAfterABreak(t *testing.T) {
	for what := range planted {
		t.Run(what, func(t *testing.T) {
			p, log := plant(t, what, leaseSuffix, false), auditLog(t)
			must(t, os.Remove(p.path))
			putLease(t, p.store, time.Hour)
			e := broke(t, p.store, look(t, p.store), forced(log))
			must(t, planted[what](p))
			notRestored(t, p.store, e, log, "changed")
			p.stays()
			must(t, os.Remove(p.path))
			p.store.fault = func(step string) error {
				if step == "audited" {
					return planted[what](p)
				}
				return nil
			}
			if err := p.store.Restore(t.Context(), e, Removal{Log: log}); !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
			p.stays()
		})
	}
}

func TestLeaseIsPutBackThroughAnotherNameOfItsDirectory(t *testing.T) {
	s, log := store(t), auditLog(t)
	putLease(t, s, sec)
	e := broke(t, s, look(t, s), forced(log))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(s.Dir, link))
	restored(t, &Store{Dir: link, Table: s.Table}, e, log)
}

func TestNothingIsBrokenBehindAFlockFileThatIsNone(t *testing.T) {
	p, log := plant(t, "a FIFO", sectionSuffix, true), auditLog(t)
	unbroken(t, p.store, look(t, p.store), forced(log), "unreadable")
	p.stays()
}

func TestKeepDoesNotHangAtAFIFO(t *testing.T) {
	for _, suffix := range []string{leaseSuffix, sectionSuffix, counterSuffix} {
		t.Run(suffix, func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				k.wait(sec)
				path := k.store.path(agent, suffix)
				aside := path + ".aside"
				swap := func() {
					must(t, os.Rename(path, aside))
					must(t, syscall.Mkfifo(path, 0o600))
				}
				swap()
				k.wait(8 * sec)
				k.held()
				if suffix == counterSuffix {
					k.wait(time.Minute) // a renewal does not need it
					k.held()
					return
				}
				must(t, os.Rename(aside, path))
				k.wait(sec)
				k.held()
				if got := k.renewed(); got > sec {
					t.Errorf("renewed %v ago", got)
				}
				swap()
				<-k.lease.Lost()
				if age := k.lease.age(); age <= 10*sec || age >= 12*sec {
					t.Errorf("told after %v", age)
				}
				k.ends("lost", "unreadable")
			})
		})
	}
}
