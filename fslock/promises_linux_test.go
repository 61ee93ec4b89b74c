package fslock

import (
	"go/parser"
	gotoken "go/token"
	"regexp"
	"strconv"
	"testing"
)

// TestEveryPromiseHasItsTests keeps together what the package comment promises, by its numbers, and the tests that prove
// it. They run by themselves.
func TestEveryPromiseHasItsTests(t *testing.T) {
	type tests = []func(*testing.T)
	proofs := map[int]tests{
		1: {
			TestOursAloneExcludeEachOther, TestOursAloneOnTwoMachines, TestOursThatTakeOverAtOnce, TestTwoTakeOversByTurns,
			TestOursWithOriginals, TestOursWithOriginalsOnTwoMachines, TestOursThatWaitWithOriginals,
			TestOneHoldsItWhenAnOriginalRemovesOurToken, TestTorture, TestManyContendersWithoutHardLinksExcludeEachOther,
		},
		2: {
			TestWhatIsNeverTaken, TestHeldLockIsNotTakenOver, TestDeadHolderIsNotWaitedFor, TestExpiredLockIsWatchedBeforeItIsTaken,
			TestHolderInAnotherProcessStopsAndDies, TestOneOfManyProcessesTakesOver,
		},
		3: {
			TestLockWithoutHardLinks, TestFailureAtAnyStepOfAnAcquisitionLeavesNoLock, TestWithoutDescriptorsNoLockIsLeft,
			TestLockThatVanishesBeforeItIsHandedOutIsNotHandedOut, TestStoppedBeforeItWasLinkedItBeatsBeforeItIsHandedOut,
		},
		4: {
			TestHourOfHeartbeats, TestBeatThatComesAfterATakeOverReachesNobodysFile, TestWhateverStandsInOurOwnFileIsWrittenAnew,
			TestCopyOfTheFileIsStillOurs,
		},
		5: {
			TestFileThatIsGoneOrAnothersIsALoss, TestSuspendMakesItStaleAndTheNextBeatRevivesIt, TestBeatsThatFailAreNoLossButToldInTime,
			TestBeatThatHasNoRoomIsToldInTimeAndMended, TestTornFileInItsPlaceIsNoLossYet,
		},
		6: {
			TestGuardKeepsOthersOutUntilItIsLeft, TestOurTokenIsWholeAndNamesItsGuard, TestTokenOfEveryState,
			TestWhatHappensBetweenAnyTwoStepsIsSeen, TestNextAttemptSucceedsAfterAnyStepAtWhichAnotherWasKilled,
			TestBreakSeesWhatHappensBetweenAnyTwoSteps, TestTokensAndTempsAreBoundToWhatWasShown,
		},
		7: {
			TestTornLockHasOneWinnerOfMany, TestTornLockWithARealWriterIsHeld, TestEmptyFileThatIsFlockedIsHeld,
			TestBreakOfWhatNoContenderTakesWantsForceAndReason, TestNothingIsRemovedThatCannotBeLogged,
		},
		8: {
			TestDeadlineIsKeptOnEveryPath, TestFreeLockIsHadWithinAShortDeadline, TestLockThatIsTakenBackIsNotWaitedFor,
			TestReleaseWhoseGuardIsBusyGoesWithoutIt, TestReleaseDuringABeatThatHangsComesAfterIt,
			TestGuardThatAStoppedProcessHasIsNotWaitedForAndNamesIt,
		},
		9: {
			TestWhatWaitingCannotMendIsRefusedAtOnce, TestWithoutPermissionItIsRefusedAtOnce, TestReadOnlyFileSystemIsRefusedAtOnce,
			TestFullDiskIsToldAtOnce, TestWhatIsNoFileIsUnreadableAtOnce, TestDirectoryThatGoesWhileSomebodyWaitsEndsTheWait,
		},
		10: {
			TestWhoeverComesToAFreeLockLetsALiveWaiterGoFirst, TestReleaserInATightLoopStarvesNobody,
			TestManyWaitersOfOneLockerComeToTheirTurn, TestOriginalsThatPollHaveTheirTurn,
		},
		11: {TestWhatMayNotBeReadIsDenied, TestFieldCasesOfLocks},
		12: {TestUnreadableLock, TestTokenThatIsNoFileBlocks},
		13: {TestReaderInARewriteSeesOneRecord, TestWhatIsRewrittenFasterThanItCanBeReadIsNotAbandoned},
		14: {TestDirectoryThatCannotBeLookedAtIsNotFree, TestRemoteClockInTheFutureDoesNotLiveForEver},
		15: {TestLookingAtManyIsLookingAtEach},
	}
	file, err := parser.ParseFile(gotoken.NewFileSet(), "fslock.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	promised := regexp.MustCompile(`(?m)^ +(\d+)\. `).FindAllStringSubmatch(file.Doc.Text(), -1)
	if len(promised) != len(proofs) {
		t.Errorf("%d promises, tests for %d", len(promised), len(proofs))
	}
	for i, p := range promised {
		if n, err := strconv.Atoi(p[1]); err != nil || n != i+1 || len(proofs[n]) == 0 {
			t.Errorf("promise %s: number %d, %d tests", p[1], i+1, len(proofs[n]))
		}
	}
}
