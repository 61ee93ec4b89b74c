package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/lease"
)

// beatEvery is how often a lock's heartbeat is written.
const beatEvery = 5 * time.Second

// padded is the length in bytes of a lock's record: a heartbeat that keeps it is never seen half written by a
// reader that reads until two reads agree.
const padded = 512

// holder plays a scene in this process.
type holder struct {
	sync.WaitGroup // what runs until the scene ends

	root, name string
	self       proc.Self
	start      time.Time
	atEnd      []func()
}

// hold plays a scene: it lays the entries down, reports that it is ready, and renews what is renewed until ctx ends.
func hold(ctx context.Context, root, name string) error {
	s, err := find(name)
	if err != nil {
		return err
	}
	return play(ctx, root, name, s.fate == leaves, s.lay)
}

func play(ctx context.Context, root, name string, leaves bool, lay func(context.Context, *holder) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &holder{root: root, name: name, self: proc.Local().Self(), start: time.Now()}
	err := os.MkdirAll(filepath.Dir(lockPath(root, name)), 0o700)
	if err == nil {
		err = lay(ctx, h)
	}
	if err == nil {
		say("ready", "")
		if !leaves {
			<-ctx.Done()
		}
	}
	cancel()
	h.Wait()
	for _, f := range h.atEnd {
		f()
	}
	return err
}

// every calls f at this interval until ctx ends or f fails: a holder that lost what it held stops renewing.
func (h *holder) every(ctx context.Context, interval time.Duration, f func() error) {
	h.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if f() != nil {
					return
				}
			}
		}
	})
}

// before is a stamp from this long before the scene began, in ms since the epoch.
func (h *holder) before(d time.Duration) int64 { return h.start.Add(-d).UnixMilli() }

// claim takes the scenario's lease.
func (h *holder) claim(ctx context.Context) (*lease.Lease, error) {
	store := &lease.Store{Dir: filepath.Join(h.root, leasesDir)}
	return store.Claim(ctx, leaseID(h.name), lease.Claimant{
		Owner: fmt.Sprintf("demo-%s-%d", h.name, h.self.PID), Block: "block-1", Channel: "demo", Version: "0.1",
	})
}

// backdate makes our lease look as if it was renewed this long ago.
func backdate(path string, age time.Duration) error {
	file, err := record.Read(path)
	if err != nil {
		return err
	}
	r, err := record.DecodeLease(path, file.Data)
	if err != nil {
		return err
	}
	r.RenewedAtMS -= age.Milliseconds()
	r.AcquiredAtMS -= age.Milliseconds()
	r.Ours.BeatBootMS = 0 // it would tell the true age
	return writeLease(path, &r, age)
}

// writeLease replaces a lease with a record, written this long ago.
func writeLease(path string, r *record.Lease, age time.Duration) error {
	if err := record.Replace(path, r.Encode(), record.ReplaceOptions{}); err != nil {
		return err
	}
	return written(path, age)
}

// written makes a file look as if it was written this long ago.
func written(path string, age time.Duration) error {
	if age == 0 {
		return nil
	}
	then := time.Now().Add(-age)
	return os.Chtimes(path, then, then)
}

// record is what this process writes into a lock that it took, with its last heartbeat, this long ago.
func (h *holder) record(age time.Duration) record.Lock {
	r := record.Lock{
		PID: uint32(h.self.PID), Hostname: h.self.Host,
		CreatedAtMS: uint64(h.before(age)), HeartbeatAtMS: uint64(h.before(age)),
		WriterEpoch: fmt.Sprintf("%d-%d", h.self.PID, h.start.UnixNano()),
		Ours:        record.Ours{PIDNS: h.self.PIDNS, PidfdIno: h.self.PidfdIno, TimeNS: h.self.TimeNS},
	}
	if h.self.StartTicks != 0 {
		r.ProcessStartTime = &h.self.StartTicks
	}
	if h.self.BootID != "" {
		r.BootID = &h.self.BootID
	}
	return r
}

// foreign is the name of another machine, and a boot id that is not ours.
func (h *holder) foreign() (host, boot string) {
	host = "web02"
	if strings.EqualFold(host, h.self.Host) {
		host = "web03"
	}
	return host, "6e1b2f0a-9d57-4c1e-8a43-5b0f7c2d9e11"
}

// lock is a lock that a scene made.
type lock struct {
	file *os.File
	rec  record.Lock
}

// lock creates the scenario's lock with a record.
func (h *holder) lock(rec record.Lock) (*lock, error) {
	path := lockPath(h.root, h.name)
	if err := record.Create(path, rec.EncodePadded(padded)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	h.atEnd = append(h.atEnd, func() { _ = file.Close() })
	return &lock{file, rec}, nil
}

// beat writes the heartbeat in place, unless the name belongs to another file by now.
func (l *lock) beat() error {
	ours, err := l.file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(l.file.Name())
	if err != nil {
		return err
	}
	if !os.SameFile(ours, named) {
		return os.ErrExist
	}
	l.rec.HeartbeatAtMS = uint64(time.Now().UnixMilli())
	_, err = l.file.WriteAt(l.rec.EncodePadded(padded), 0)
	return err
}
