package verdict

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestGlanceIsJudgeWithoutWhatFewRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := anyTime.Draw(t, "now")
		for _, f := range []interface {
			Subject
			Glance(now time.Time) Verdict
		}{drawLease(t), drawLock(t), drawToken(t)} {
			want := f.Judge(at)
			want.Evidence, want.Originals, want.Next = nil, nil, nil
			got := f.Glance(at)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%T: got  %+v\nwant %+v", f, got, want)
			}
		}
	})
}

func TestGlanceAtFactsThatNobodyGathered(t *testing.T) {
	for _, v := range []Verdict{new(LeaseFacts).Glance(now), new(LockFacts).Glance(now), new(TokenFacts).Glance(now)} {
		if v.State != Unknown || v.Claimable.When != Blocked || !v.Flags.Has(IsBlocked) {
			t.Errorf("%+v", v)
		}
	}
}
