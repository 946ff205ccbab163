package doctor

// Probe is the script that tries rights.
const Probe = probe

// The codes.
const (
	CodeServer         = codeServer
	CodeUnreachable    = codeUnreachable
	CodeBusy           = codeBusy
	CodeNotSeen        = codeNotSeen
	CodeVersion        = codeVersion
	CodeLua            = codeLua
	CodeEviction       = codeEviction
	CodeMemory         = codeMemory
	CodePersistence    = codePersistence
	CodeDisk           = codeDisk
	CodeReplica        = codeReplica
	CodeFailover       = codeFailover
	CodeMinReplicas    = codeMinReplicas
	CodeReplicaAcks    = codeReplicaAcks
	CodeSentinel       = codeSentinel
	CodeClusterClient  = codeClusterClient
	CodeClusterSlots   = codeClusterSlots
	CodeClusterState   = codeClusterState
	CodeSharedClient   = codeSharedClient
	CodeQuorum         = codeQuorum
	CodeRestart        = codeRestart
	CodeClockSpread    = codeClockSpread
	CodeClock          = codeClock
	CodeClockDrift     = codeClockDrift
	CodeLatency        = codeLatency
	CodeSlowCommands   = codeSlowCommands
	CodeRights         = codeRights
	CodeChannel        = codeChannel
	CodeTrial          = codeTrial
	CodeIdleTimeout    = codeIdleTimeout
	CodeKeepalive      = codeKeepalive
	CodePubSubBuffer   = codePubSubBuffer
	CodeReplyThreshold = codeReplyThreshold
)
