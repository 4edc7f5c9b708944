package queue

// MaxRuns is how many runs are kept of each group.
const MaxRuns = maxRuns
