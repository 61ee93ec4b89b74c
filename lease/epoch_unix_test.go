//go:build unix

package lease

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRepairOfACounterThatIsNoFile(t *testing.T) {
	for what := range planted {
		t.Run(what, func(t *testing.T) {
			p, log := plant(t, what, counterSuffix, false), auditLog(t)
			before := contents(t, filepath.Dir(p.victim))
			began := time.Now()
			r := Repair{Epoch: 7, Reason: "planted", Log: log}
			if what == "a directory" {
				if says := refusedRepair(t, p.store, agent, r, syscall.EISDIR); !strings.Contains(says, p.path) {
					t.Error(says)
				}
				p.stays()
				return
			}
			if _, err := p.store.SetEpoch(t.Context(), agent, r); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if st, err := os.Lstat(p.path); err != nil || !st.Mode().IsRegular() || readCount(t, p.store) != "7\n" {
				t.Errorf("the counter is %v, %v", st, err)
			}
			if e := audited(t, log)[0]; e.Before != nil || e.Found == "" {
				t.Errorf("%+v", e)
			}
			after := contents(t, filepath.Dir(p.victim))
			if len(after) != len(before) || after["victim"] != before["victim"] {
				t.Errorf("the target of the link was touched: %+v, was %+v", after, before)
			}
			granted(t, p.store, other("owner-b"), 8)
		})
	}
}

func TestRepairWithAFlockFileThatIsNone(t *testing.T) {
	p, log := plant(t, "a FIFO", sectionSuffix, false), auditLog(t)
	refusedRepair(t, p.store, agent, Repair{Epoch: 7, Reason: "planted", Log: log}, ErrUnreadable)
	if _, err := os.Stat(log.Path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
