package cli

// handlesHelp says in help texts what may be typed for a job.
const handlesHelp = `A job is named by its ID (j7), by its name if only one active job has it (resnet50), as the
newest of a name (resnet50@last) or as your newest (@last).`

// arraysHelp says it of commands that also take an array.
const arraysHelp = handlesHelp + `
The ID of an array (a12) stands for all its elements.`
