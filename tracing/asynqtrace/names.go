package asynqtrace

// The names of OpenTelemetry's semantic conventions for messaging, version 1.37 (not stable), and ours. They are
// nowhere else.
const (
	attrSystem        = "messaging.system"
	attrOperationName = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"
	attrDestination   = "messaging.destination.name"
	attrMessageID     = "messaging.message.id"
	attrErrorType     = "error.type"

	attrTaskType = "asynq.task.type"
	attrRetried  = "asynq.task.retried"

	system  = "asynq"
	process = "process"

	errorPanic = "panic"
)
