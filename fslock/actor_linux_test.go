package fslock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/fslock/record"
)

// What the original waits for, each "greater than".
const (
	aftBeat       = 5 * time.Second
	aftPoll       = 100 * time.Millisecond
	aftOtherHost  = 75 * time.Second
	aftTokenStale = time.Minute
	aftBackOff    = 250 * time.Millisecond
	aftBackOffMax = 5 * time.Second
)

// original is one process that locks as AFT does: the same calls on the same files in the same order, unsafe ones
// included. Before each of them it calls step, so that whoever drives it can let it wait there, or vanish.
type original struct {
	pid     int
	host    string
	start   uint64
	boot    string
	inPlace bool // newer builds rewrite the file at a heartbeat, older ones replace it

	// alive is what its kernel says of a recorded process of its own host.
	alive func(*record.Lock) bool
	// step is told what comes next. It does not return once the process is killed.
	step func(next string)
	// spawn runs what its threads do; whoever drives it waits for them.
	spawn func(func())

	made uint64 // numbers what is made within one nanosecond
}

// aftHold is a lock that an original holds.
type aftHold struct {
	o    *original
	path string
	rec  record.Lock
	stop chan struct{}
	done chan struct{}
	lost chan struct{} // closed when the heartbeat has ended by itself
}

func (o *original) now() uint64 { return uint64(time.Now().UnixMilli()) }

// self is the record of this process.
func (o *original) self(noncePrefix string) record.Lock {
	o.made++
	now := o.now()
	return record.Lock{
		PID: uint32(o.pid), Hostname: o.host, ProcessStartTime: &o.start, BootID: &o.boot,
		CreatedAtMS: now, HeartbeatAtMS: now,
		WriterEpoch: fmt.Sprintf("%s%d-%d", noncePrefix, o.pid, uint64(time.Now().UnixNano())+o.made),
	}
}

func (o *original) tempPath(path string) string {
	o.made++
	dir, name := filepath.Split(path)
	return fmt.Sprintf("%s.%s.tmp.%d.%d.%d", dir, name, o.pid, time.Now().UnixNano(), o.made)
}

// sameOwner compares all but the heartbeat.
func sameOwner(a, b *record.Lock) bool {
	equal := func(a, b *uint64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	boots := (a.BootID == nil) == (b.BootID == nil) && (a.BootID == nil || *a.BootID == *b.BootID)
	return a.PID == b.PID && a.Hostname == b.Hostname && equal(a.ProcessStartTime, b.ProcessStartTime) && boots &&
		a.CreatedAtMS == b.CreatedAtMS && a.WriterEpoch == b.WriterEpoch
}

// errAFTMalformed is what it makes of a file that does not parse.
var errAFTMalformed = errors.New("malformed")

func (o *original) read(path string) (*record.Lock, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rec, err := record.DecodeLock(path, data)
	if err != nil {
		return nil, errAFTMalformed
	}
	return &rec, nil
}

// acquire waits for the lock until the deadline; with a deadline that has passed it tries once, and once more after
// it has removed something. nil: it ran out of time.
func (o *original) acquire(path string, deadline time.Time) (*aftHold, error) {
	again, blocked := 0, 0
	for first := true; ; first = false {
		if again > 0 {
			again--
		} else if !first && !time.Now().Before(deadline) {
			return nil, nil
		}
		h, err := o.create(path)
		if !errors.Is(err, fs.ErrExist) {
			return h, err
		}

		o.step("look at the lock")
		rec, err := o.read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			again = 1
			continue
		case errors.Is(err, errAFTMalformed):
			if !o.sleep(deadline, aftPoll) {
				return nil, nil
			}
			o.step("look at the malformed lock again")
			if _, err := o.read(path); errors.Is(err, errAFTMalformed) {
				o.step("remove the malformed lock")
				if err := aftRemove(path); err != nil {
					return nil, err
				}
				again = 1
			}
			continue
		case err != nil:
			return nil, err
		}

		wait := aftPoll
		silent := time.Duration(max(0, int64(o.now())-int64(rec.HeartbeatAtMS))) * time.Millisecond
		elsewhere := rec.Hostname != o.host
		if elsewhere && silent > aftOtherHost || !elsewhere && !o.alive(rec) {
			out, err := o.reclaim(path, rec)
			switch {
			case err != nil:
				return nil, err
			case out == aftRemoved:
				again, blocked = 1, 0
				continue
			case out == aftBlocked && !elsewhere:
				wait = min(aftBackOff<<min(blocked, 20), aftBackOffMax)
				blocked++
			default:
				blocked = 0
			}
		} else {
			blocked = 0
		}
		if !o.sleep(deadline, wait) {
			return nil, nil
		}
	}
}

// sleep reports false when there is no time left for it.
func (o *original) sleep(deadline time.Time, d time.Duration) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	time.Sleep(min(d, left))
	o.step("wake up")
	return true
}

// create puts a whole record under the name, if it is free.
func (o *original) create(path string) (*aftHold, error) {
	rec := o.self("")
	temp := o.tempPath(path)
	o.step("make a temp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	o.step("write the temp")
	_, err = f.Write(rec.Encode())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		o.step("link the temp to the name")
		err = os.Link(temp, path)
	}
	o.step("remove the temp")
	_ = os.Remove(temp)
	if err != nil {
		return nil, err
	}
	h := &aftHold{
		o: o, path: path, rec: rec,
		stop: make(chan struct{}), done: make(chan struct{}), lost: make(chan struct{}),
	}
	o.spawn(h.keep)
	return h, nil
}

func aftRemove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// aftOutcome is how its removal of somebody's lock ended.
type aftOutcome int

const (
	aftUnchanged aftOutcome = iota // somebody else's now, or gone: look again
	aftRemoved
	aftBlocked // by a token
)

// reclaim removes the lock if it still is the one that was judged, under a token.
func (o *original) reclaim(path string, judged *record.Lock) (aftOutcome, error) {
	dir, name := filepath.Split(path)
	token := dir + record.TokenName(name)
	if ok, err := o.takeToken(token); !ok || err != nil {
		return aftBlocked, err
	}
	out, err := o.removeJudged(path, judged, "lock")
	o.step("drop the token")
	_ = os.Remove(token)
	return out, err
}

// removeJudged removes what is at path if its owner still is the one that was judged. Between comparing and removing
// it can become another's.
func (o *original) removeJudged(path string, judged *record.Lock, what string) (aftOutcome, error) {
	o.step("compare the " + what)
	rec, err := o.read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errAFTMalformed):
		return aftUnchanged, nil
	case err != nil:
		return aftUnchanged, err
	case !sameOwner(rec, judged):
		return aftUnchanged, nil
	}
	o.step("remove the " + what)
	return aftRemoved, aftRemove(path)
}

// takeToken makes the token, and clears a dead one once for it.
func (o *original) takeToken(token string) (bool, error) {
	err := o.makeToken(token)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	if cleared, err := o.clearToken(token, true); !cleared || err != nil {
		return false, err
	}
	err = o.makeToken(token)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// makeToken writes under the name itself: till it is done others see a part of it.
func (o *original) makeToken(token string) error {
	rec := o.self("reclaim-")
	data := rec.Encode()
	o.step("make the token")
	f, err := os.OpenFile(token, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	o.step("write half of the token")
	_, err = f.Write(data[:len(data)/2])
	if err == nil {
		o.step("write the rest of the token")
		_, err = f.Write(data[len(data)/2:])
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(token)
	}
	return err
}

// clearToken removes a token of a dead process, or one that has been malformed for a minute. A missing one is as good
// as cleared by whoever wants to make one.
func (o *original) clearToken(token string, missing bool) (bool, error) {
	o.step("look at the token")
	rec, err := o.read(token)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing, nil
	case errors.Is(err, errAFTMalformed):
		info, err := os.Stat(token)
		if err != nil || time.Since(info.ModTime()) <= aftTokenStale {
			return false, nil
		}
		o.step("remove the malformed token")
		return true, aftRemove(token)
	case err != nil:
		return false, err
	case rec.Hostname != o.host, o.alive(rec):
		return false, nil
	}
	out, err := o.removeJudged(token, rec, "token")
	return out == aftRemoved, err
}

// keep beats until it is told to stop, or finds the lock gone or another's.
func (h *aftHold) keep() {
	defer close(h.done)
	for {
		select {
		case <-h.stop:
			return
		case <-time.After(aftBeat):
		}
		if !h.beat() {
			close(h.lost)
			return
		}
	}
}

func (h *aftHold) stopped() bool {
	select {
	case <-h.stop:
		return true
	default:
		return false
	}
}

// beat reports false when the lock is provably not its own any more. What else goes wrong is tried again at the next.
func (h *aftHold) beat() bool {
	o := h.o
	o.step("beat: compare")
	if h.stopped() {
		return true
	}
	rec, err := o.read(h.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		return true
	case !sameOwner(rec, &h.rec):
		return false
	}
	rec.HeartbeatAtMS = o.now()
	if o.inPlace {
		h.rewrite(rec.Encode())
	} else {
		h.replace(rec.Encode())
	}
	return true
}

// rewrite writes into whatever stands under the name by then; readers may see half of it.
func (h *aftHold) rewrite(data []byte) {
	h.o.step("beat: open")
	f, err := os.OpenFile(h.path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	half := len(data) / 2
	for i, part := range [][]byte{data[:half], data[half:]} {
		h.o.step("beat: write a half")
		if _, err := f.WriteAt(part, int64(i*half)); err != nil {
			return
		}
	}
}

// replace puts a new file in the place of whatever stands under the name by then.
func (h *aftHold) replace(data []byte) {
	temp := h.o.tempPath(h.path)
	h.o.step("beat: make a temp")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return
	}
	h.o.step("beat: rename")
	if err := os.Rename(temp, h.path); err != nil {
		_ = os.Remove(temp)
	}
}

// verify reports whether the lock is its own.
func (h *aftHold) verify() bool {
	select {
	case <-h.lost:
		return false
	default:
	}
	rec, err := h.o.read(h.path)
	return err == nil && sameOwner(rec, &h.rec)
}

// release joins the heartbeat, then removes the lock if it is its own.
func (h *aftHold) release() error {
	close(h.stop)
	<-h.done
	_, err := h.o.removeJudged(h.path, &h.rec, "own lock")
	return err
}
