package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gofrs/flock"

	"holdfast/fslock/disktest"
	"holdfast/fslock/record"
)

// place is where a benchmark runs.
type place struct {
	*testing.B
	*Store
}

func places(b *testing.B, bench func(p place)) {
	b.Helper()
	disktest.Places(b, func(b *testing.B, dir string) { bench(place{b, &Store{Dir: dir}}) })
}

// bare makes the system calls of a lease's life without looking at what they bring.
type bare struct{ dir string }

func (r bare) path(suffix string) string { return filepath.Join(r.dir, "bare"+suffix) }

func (r bare) inside(do func() error) error {
	f, err := os.OpenFile(r.path(sectionSuffix), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	lock := flock.New(f.Name())
	if _, err := lock.TryLock(); err != nil {
		return err
	}
	err = do()
	_ = lock.Close()
	return errors.Join(err, f.Close())
}

func (r bare) replace(suffix string, data []byte, sync bool) error {
	temp := filepath.Join(r.dir, ".temp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err := errors.Join(err, f.Close(), os.Rename(temp, r.path(suffix))); err != nil || !sync {
		return err
	}
	d, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (r bare) read(suffix string) error {
	_, err := os.ReadFile(r.path(suffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func BenchmarkClaimAndRelease(b *testing.B) {
	places(b, func(p place) {
		b, s := p.B, p.Store
		r, data := bare{s.Dir}, make([]byte, 500)
		disktest.SideBySide(b, func() error {
			claim := r.inside(func() error {
				return errors.Join(r.read(leaseSuffix), r.read(counterSuffix), r.replace(counterSuffix, []byte("1\n"), true), r.replace(leaseSuffix, data, false))
			})
			release := r.inside(func() error {
				return errors.Join(r.read(leaseSuffix), r.read(counterSuffix), os.Remove(r.path(leaseSuffix)))
			})
			return errors.Join(claim, release)
		}, func() error {
			l, err := s.Claim(b.Context(), agent, Claimant{Owner: "owner-a", Block: "block-1"})
			if err != nil {
				return err
			}
			return l.Release()
		})
	})
}

func BenchmarkRenew(b *testing.B) {
	places(b, func(p place) {
		b, s := p.B, p.Store
		r, data := bare{s.Dir}, make([]byte, 500)
		l, err := s.Claim(b.Context(), agent, Claimant{Owner: "owner-a", Block: "block-1"})
		if err != nil {
			b.Fatal(err)
		}
		disktest.SideBySide(b, func() error {
			return r.inside(func() error { return errors.Join(r.read(leaseSuffix), r.replace(leaseSuffix, data, false)) })
		}, func() error { return l.Renew(b.Context()) })
	})
}

// held is a lease of a process that runs, and the bare files beside it.
func held(b *testing.B, s *Store) bare {
	b.Helper()
	if _, err := s.Claim(b.Context(), agent, Claimant{Owner: "owner-a", Block: "block-1"}); err != nil {
		b.Fatal(err)
	}
	r := bare{s.Dir}
	if err := errors.Join(r.replace(leaseSuffix, make([]byte, 500), false), r.replace(counterSuffix, []byte("1\n"), false)); err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkRefusedClaim(b *testing.B) {
	places(b, func(p place) {
		b, s := p.B, p.Store
		r := held(b, s)
		disktest.SideBySide(b, func() error {
			return r.inside(func() error { return errors.Join(r.read(leaseSuffix), r.read(counterSuffix)) })
		}, func() error {
			if _, err := s.Claim(b.Context(), agent, Claimant{Owner: "owner-b", Block: "block-1"}); !errors.Is(err, ErrHeld) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		})
	})
}

func BenchmarkLiveHolder(b *testing.B) {
	places(b, func(p place) {
		b, s := p.B, p.Store
		r := held(b, s)
		disktest.SideBySide(b, func() error { return errors.Join(r.read(leaseSuffix), r.read(counterSuffix)) }, func() error {
			if h, err := s.LiveHolder(agent, "owner-b"); h == nil || err != nil {
				return fmt.Errorf("nobody: %w", err)
			}
			return nil
		})
	})
}

func BenchmarkVerify(b *testing.B) {
	places(b, func(p place) {
		b, s := p.B, p.Store
		r := held(b, s)
		f, err := record.Read(s.path(agent, leaseSuffix))
		if err != nil {
			b.Fatal(err)
		}
		rec, err := record.DecodeLease(f.Path, f.Data)
		if err != nil {
			b.Fatal(err)
		}
		l, err := s.Handle(agent, rec.ClaimID)
		if err != nil {
			b.Fatal(err)
		}
		disktest.SideBySide(b, func() error { return r.read(leaseSuffix) }, func() error { return l.Verify(b.Context()) })
	})
}

// BenchmarkList looks at many leases at once, all held by this process.
func BenchmarkList(b *testing.B) {
	const leases = 2000
	dir := b.TempDir()
	s := &Store{Dir: dir}
	for i := range leases {
		if _, err := s.Claim(b.Context(), fmt.Sprintf("agent-%05d", i), Claimant{Owner: "owner-a"}); err != nil {
			b.Fatal(err)
		}
	}
	disktest.SideBySide(b, func() error {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			if _, rerr := os.ReadFile(filepath.Join(dir, e.Name())); rerr != nil {
				err = rerr
			}
		}
		return err
	}, func() error {
		infos, err := s.List(b.Context())
		if len(infos) != leases {
			return fmt.Errorf("%d leases: %w", len(infos), err)
		}
		return err
	})
}
