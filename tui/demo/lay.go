package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"holdfast/fslock/record"
)

// lateEvery is how often the late lease is renewed: it is live for 7.5 s, then late for 4.5 s, and never runs out.
const lateEvery = 12 * time.Second

// layHeld takes the lease and the lock, once. What follows is the process's fate.
func layHeld(ctx context.Context, h *holder) error {
	if _, err := h.claim(ctx); err != nil {
		return err
	}
	_, err := h.lock(h.record(0))
	return err
}

func layLive(ctx context.Context, h *holder) error {
	l, err := h.claim(ctx)
	if err != nil {
		return err
	}
	h.Go(func() { _ = l.Keep(ctx) })
	return layBeating(ctx, h, h.record(0))
}

// layBeating creates the lock and keeps its heartbeat going.
func layBeating(ctx context.Context, h *holder, rec record.Lock) error {
	lock, err := h.lock(rec)
	if err != nil {
		return err
	}
	h.every(ctx, beatEvery, lock.beat)
	return nil
}

// layLate starts where both are late already, so that nobody must wait to see it.
func layLate(ctx context.Context, h *holder) error {
	const late = 8 * time.Second
	l, err := h.claim(ctx)
	if err != nil {
		return err
	}
	if err := backdate(l.Path(), late); err != nil {
		return err
	}
	h.Go(func() {
		for wait := lateEvery - late; ; wait = lateEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				if l.Renew(ctx) != nil {
					return
				}
			}
		}
	})
	_, err = h.lock(h.record(45 * time.Second))
	return err
}

func layLong(ctx context.Context, h *holder) error {
	rec := h.record(0)
	rec.CreatedAtMS = uint64(h.before(11 * time.Minute))
	return layBeating(ctx, h, rec)
}

// layLegacy writes what a program writes that cannot tell its start time and boot.
func layLegacy(_ context.Context, h *holder) error {
	rec := h.record(45 * time.Second)
	rec.ProcessStartTime, rec.BootID, rec.Ours = nil, nil, record.Ours{}
	_, err := h.lock(rec)
	return err
}

func layExpired(ctx context.Context, h *holder) error {
	l, err := h.claim(ctx)
	if err != nil {
		return err
	}
	if err := backdate(l.Path(), time.Minute); err != nil {
		return err
	}
	return h.foreignLock(81 * time.Second)
}

// layInside leaves a free lease whose critical section this process has entered, and leaves it when it goes on.
func layInside(ctx context.Context, h *holder) error {
	if err := layFree(ctx, h); err != nil {
		return err
	}
	section := flock.New(filepath.Join(h.root, leasesDir, leaseID(h.name)+".lock"))
	if got, err := section.TryLock(); err != nil || !got {
		return errors.Join(err, errors.New("somebody is in the critical section"))
	}
	leave := func() { _ = section.Close() }
	h.atEnd = append(h.atEnd, leave)
	onContinue(leave)
	return nil
}

// layZombie lets a child take the lease and the lock and exit, and does not reap it until the scene ends.
func layZombie(ctx context.Context, h *holder) error {
	reports, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	cmd, err := command(ctx, bodyVerb, h.root, h.name)
	if err == nil {
		// It shares our lifeline: at the end of any other standard input it would think that it must go.
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, theirs, theirs
		tether(cmd)
		err = cmd.Start()
	}
	_ = theirs.Close()
	if err != nil {
		return err
	}
	h.atEnd = append(h.atEnd, func() { _ = cmd.Wait() })
	if _, err := listen(reports); err != nil {
		return err
	}
	// Its end of the pipe is closed a moment before it is a zombie; what comes next is certain where it can be.
	if _, err := io.Copy(io.Discard, reports); err != nil {
		return err
	}
	return awaitExit(cmd.Process.Pid)
}

// layRecycled names this process by a start that is not its own, as one that had its pid before would be named.
func layRecycled(_ context.Context, h *holder) error {
	rec := h.record(45 * time.Second)
	start := max(h.self.StartTicks, 4000) - 3591
	rec.ProcessStartTime, rec.Ours.PidfdIno = &start, 0
	_, err := h.lock(rec)
	return err
}

// layBlocked takes the lock; the token beside it was left by somebody who was removing a stale one.
func layBlocked(_ context.Context, h *holder) error {
	if _, err := h.lock(h.record(0)); err != nil {
		return err
	}
	const age = 2 * time.Hour
	_, boot := h.foreign()
	then := h.start.Add(-age)
	token := record.Lock{
		PID: 377, Hostname: "old-host", BootID: &boot,
		CreatedAtMS: uint64(then.UnixMilli()), HeartbeatAtMS: uint64(then.UnixMilli()),
		WriterEpoch: fmt.Sprintf("reclaim-377-%d", then.UnixNano()),
	}
	lock := lockPath(h.root, h.name)
	path := filepath.Join(filepath.Dir(lock), record.TokenName(filepath.Base(lock)))
	if err := record.Create(path, token.Encode()); err != nil {
		return err
	}
	return written(path, age)
}

func layRemote(ctx context.Context, h *holder) error {
	host, boot := h.foreign()
	start := uint64(5530)
	rec := record.Lock{
		PID: 1442, Hostname: host, ProcessStartTime: &start, BootID: &boot,
		CreatedAtMS: uint64(h.before(0)), HeartbeatAtMS: uint64(h.before(0)),
		WriterEpoch: fmt.Sprintf("1442-%d", h.start.UnixNano()),
	}
	if err := layBeating(ctx, h, rec); err != nil {
		return err
	}
	return h.renewForeign(ctx, h.foreignLease(0))
}

// laySilent leaves ten seconds to watch both run out.
func laySilent(_ context.Context, h *holder) error {
	const left = 10 * time.Second
	age := 15*time.Second - left
	r := h.foreignLease(age)
	if err := h.counter(r.Epoch); err != nil {
		return err
	}
	if err := writeLease(h.leasePath(), r, age); err != nil {
		return err
	}
	return h.foreignLock(75*time.Second - left)
}

// layUnknown writes what a process in a sandbox writes, or, where there are no pid namespaces, one that does not
// know its machine.
func layUnknown(ctx context.Context, h *holder) error {
	rec, r := h.record(0), h.foreignLease(0)
	start := max(h.self.StartTicks, 1001) - 1000
	rec.PID, rec.ProcessStartTime = 9120, &start
	rec.Ours = record.Ours{PIDNS: h.self.PIDNS + 1, TimeNS: h.self.TimeNS}
	r.PID, r.Hostname, r.PIDStartS = rec.PID, h.self.Host, h.self.StartUnix
	r.Ours = record.Ours{PIDNS: h.self.PIDNS + 1, TimeNS: h.self.TimeNS, KernelBootID: h.self.BootID, PIDStartTicks: start}
	if h.self.PIDNS == 0 {
		rec.Hostname, rec.BootID, rec.Ours = "unknown-host", nil, record.Ours{}
		r.Hostname, r.Ours = "unknown-host", record.Ours{}
	}
	if err := layBeating(ctx, h, rec); err != nil {
		return err
	}
	return h.renewForeign(ctx, r)
}

func layUnreadable(ctx context.Context, h *holder) error {
	l, err := h.claim(ctx)
	if err != nil {
		return err
	}
	whole, err := os.ReadFile(l.Path())
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.Path(), whole[:len(whole)/3], 0o600); err != nil {
		return err
	}
	path := lockPath(h.root, h.name)
	if os.Symlink("elsewhere.lock", path) == nil {
		return nil
	}
	// Not everybody may make symlinks on Windows; a directory is as little of a lock.
	return os.Mkdir(path, 0o700)
}

func layLitter(_ context.Context, h *holder) error {
	rec := h.record(0)
	lock := lockPath(h.root, h.name)
	name := fmt.Sprintf(".%s.tmp.%d.%d.0", filepath.Base(lock), h.self.PID, h.start.UnixNano())
	return os.WriteFile(filepath.Join(filepath.Dir(lock), name), rec.Encode(), 0o600)
}

func layFree(ctx context.Context, h *holder) error {
	for range 3 {
		l, err := h.claim(ctx)
		if err != nil {
			return err
		}
		if err := l.Release(); err != nil {
			return err
		}
	}
	return nil
}

func (h *holder) leasePath() string {
	return filepath.Join(h.root, leasesDir, leaseID(h.name)+".lease.json")
}

// counter writes the lease's epoch counter.
func (h *holder) counter(epoch uint64) error {
	path := filepath.Join(h.root, leasesDir, leaseID(h.name)+".epoch")
	return os.WriteFile(path, record.EncodeCounter(epoch), 0o600)
}

// foreignLease is a lease of another machine's AgentMux, renewed this long ago.
func (h *holder) foreignLease(age time.Duration) *record.Lease {
	host, _ := h.foreign()
	return &record.Lease{
		InstanceID: leaseID(h.name), OwnerBootID: "agentmux-" + host, BlockID: "block-7", PID: 1442,
		AcquiredAtMS: h.before(age + 3*time.Minute), RenewedAtMS: h.before(age), Epoch: 4,
		Hostname: host, PIDStartS: uint64(h.start.Add(-time.Hour).Unix()),
		Channel: "stable", Version: "0.57", ClaimID: fmt.Sprintf("demo-%s-%d", h.name, h.start.UnixNano()),
	}
}

// foreignLock is a lock of another machine, whose last heartbeat is this old.
func (h *holder) foreignLock(age time.Duration) error {
	host, boot := h.foreign()
	start := uint64(5530)
	_, err := h.lock(record.Lock{
		PID: 1442, Hostname: host, ProcessStartTime: &start, BootID: &boot,
		CreatedAtMS: uint64(h.before(age + time.Minute)), HeartbeatAtMS: uint64(h.before(age)),
		WriterEpoch: fmt.Sprintf("1442-%d", h.start.UnixNano()),
	})
	if err != nil {
		return err
	}
	return written(lockPath(h.root, h.name), age)
}

// renewForeign writes a lease as its holder, who is not us, would do, and renews it until somebody else has it.
func (h *holder) renewForeign(ctx context.Context, r *record.Lease) error {
	if err := h.counter(r.Epoch); err != nil {
		return err
	}
	if err := writeLease(h.leasePath(), r, 0); err != nil {
		return err
	}
	h.every(ctx, beatEvery, func() error {
		file, err := record.Read(h.leasePath())
		if err != nil {
			return err
		}
		if now, err := record.DecodeLease(h.leasePath(), file.Data); err != nil || now.ClaimID != r.ClaimID {
			return os.ErrExist
		}
		r.RenewedAtMS = time.Now().UnixMilli()
		return writeLease(h.leasePath(), r, 0)
	})
	return nil
}
