#pragma once
// The variables of the process's environment that Starling reads, and their values.
//
// environment() reads all of them at its first call. starling::main() calls it first; in a program that uses
// Starling without that main(), the first reader calls it. setenv() after that is for processes that this one
// starts: no reader of environment() sees it, and none calls getenv() beside another thread's setenv(). A GPU
// plugin has an environment() of its own, read when it is opened.
// CLI11 reads the variables of options itself, before any thread starts; libcurl and NCCL read theirs.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

namespace starling {

// Of each variable: what it says, and what counts without it. docs/environment.md has the same rows.
// clang-format off
#define STARLING_ENVIRONMENT(VARIABLE) \
  VARIABLE(kJoin, "STARLING_JOIN", "how a worker joins, as `--join`", "the option is needed") \
  VARIABLE(kIdentityToken, "STARLING_IDENTITY_TOKEN", "a file with a token of the job's identity provider, as `--identity-token`", "none") \
  VARIABLE(kLogFormat, "STARLING_LOG_FORMAT", "the format of lines on stderr, `text` or `ecs`, as `--log-format`", "`text`") \
  VARIABLE(kPython, "STARLING_PYTHON", "the Python that runs scripts: its path, or a name on the `PATH`", "`python3`") \
  VARIABLE(kPythonLibs, "STARLING_PYTHON_LIBS", "folders of Python packages, with colons between, whose `nvidia` ones have libraries", "none") \
  VARIABLE(kVirtualEnv, "VIRTUAL_ENV", "a Python environment, whose packages come after those of `STARLING_PYTHON_LIBS`", "none") \
  VARIABLE(kPlugin, "STARLING_PLUGIN", "the file of the GPU plugin", "that in `lib/starling` of the bundle, else in the build folder") \
  VARIABLE(kNccl, "STARLING_NCCL", "the file of NCCL's library, and no other place", "`libnccl.so.2` in `lib` of the bundle, the system's, that of Python's packages") \
  VARIABLE(kNcclSharedGpu, "STARLING_NCCL_SHARED_GPU", "`1`, for tests: processes that share a GPU are hosts of their own to NCCL", "NCCL refuses them") \
  VARIABLE(kCublasLt, "STARLING_CUBLASLT", "the file of cuBLASLt, and no other place", "`libcublasLt.so.13` beside the plugin, the system's, that of Python's packages; without any our own products serve, slower") \
  VARIABLE(kCudaPlans, "STARLING_CUDA_PLANS", "a file with a table of cuBLASLt's algorithms for this device", "those in `plans` beside the plugin. What is in no table is chosen by a fixed rule; nothing is chosen by timing") \
  VARIABLE(kAgain, "STARLING_AGAIN", "the command that goes on with a script's job; `starling.train()` sets it", "this command line with `--resume`") \
  VARIABLE(kParent, "STARLING_PARENT", "the pid of the process that has started the command and waits for it, and after a space the number of the signal that ends the command with it; that process sets it, and where another one is the parent the signal comes at once", "the command outlives the process") \
  VARIABLE(kSeats, "STARLING_SEATS", "where coordinators are that have moved; a worker sets it for its next life", "none has moved") \
  VARIABLE(kLaterLife, "STARLING_LATER_LIFE", "that this is no first life; a worker sets it for its next life", "it is the first") \
  VARIABLE(kNcclCommId, "NCCL_COMM_ID", "an address that all communicators of NCCL share: refused", "each has its own") \
  VARIABLE(kNcclCumem, "NCCL_CUMEM_ENABLE", "`0` is refused: memory would not outlive its rank", "NCCL decides") \
  VARIABLE(kNcclCumemHost, "NCCL_CUMEM_HOST_ENABLE", "`0` is refused: memory would not outlive its rank", "NCCL decides") \
  VARIABLE(kNcclNvls, "NCCL_NVLS_ENABLE", "whether NCCL uses NVLS, which no abort stops", "`0`") \
  VARIABLE(kNcclRas, "NCCL_RAS_ENABLE", "whether NCCL watches peers itself", "`0`") \
  VARIABLE(kNcclPxn, "NCCL_PXN_DISABLE", "whether NCCL sends by no other rank's GPU", "`1`") \
  VARIABLE(kAwsKeyId, "AWS_ACCESS_KEY_ID", "the name of the key for `s3://`", "a profile's, or a role's") \
  VARIABLE(kAwsSecret, "AWS_SECRET_ACCESS_KEY", "its secret", "a profile's, or a role's") \
  VARIABLE(kAwsSessionToken, "AWS_SESSION_TOKEN", "the token of a temporary key", "none") \
  VARIABLE(kAwsProfile, "AWS_PROFILE", "the section of AWS's files that counts", "`default`") \
  VARIABLE(kAwsCredentialsFile, "AWS_SHARED_CREDENTIALS_FILE", "the file of keys", "`~/.aws/credentials`") \
  VARIABLE(kAwsConfigFile, "AWS_CONFIG_FILE", "the file of settings", "`~/.aws/config`") \
  VARIABLE(kAwsWebIdentityTokenFile, "AWS_WEB_IDENTITY_TOKEN_FILE", "a file with a token that is given for a key", "none") \
  VARIABLE(kAwsRole, "AWS_ROLE_ARN", "the role that the token is for", "none") \
  VARIABLE(kAwsRoleSession, "AWS_ROLE_SESSION_NAME", "the name of the session", "`starling`") \
  VARIABLE(kAwsEndpointSts, "AWS_ENDPOINT_URL_STS", "the service that gives a key for the token", "AWS's in the region") \
  VARIABLE(kAwsContainerRelative, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "the path of a container's key at `http://169.254.170.2`", "none") \
  VARIABLE(kAwsContainerFull, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "the address of a container's key", "none") \
  VARIABLE(kAwsContainerToken, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "what is shown there", "nothing") \
  VARIABLE(kAwsContainerTokenFile, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "a file with what is shown there", "nothing") \
  VARIABLE(kAwsMetadataDisabled, "AWS_EC2_METADATA_DISABLED", "`true`: no key of the machine's role", "the role's key is the last choice") \
  VARIABLE(kAwsMetadata, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "the machine's metadata service", "`http://169.254.169.254`") \
  VARIABLE(kAwsRegion, "AWS_REGION", "the region", "`AWS_DEFAULT_REGION`") \
  VARIABLE(kAwsDefaultRegion, "AWS_DEFAULT_REGION", "the region", "the profile's, or `us-east-1`") \
  VARIABLE(kAwsEndpointS3, "AWS_ENDPOINT_URL_S3", "the store of `s3://`", "`AWS_ENDPOINT_URL`") \
  VARIABLE(kAwsEndpoint, "AWS_ENDPOINT_URL", "the store of `s3://`", "the profile's, or AWS in the region") \
  VARIABLE(kAwsCaBundle, "AWS_CA_BUNDLE", "a file of certificates to trust", "`SSL_CERT_FILE`") \
  VARIABLE(kSslCertFile, "SSL_CERT_FILE", "a file of certificates to trust", "the system's") \
  VARIABLE(kNotifySocket, "NOTIFY_SOCKET", "where a service manager hears of the state; systemd sets it", "there is no manager") \
  VARIABLE(kWatchdogUsec, "WATCHDOG_USEC", "how long it waits for word, in microseconds; systemd sets it", "for ever") \
  VARIABLE(kWatchdogPid, "WATCHDOG_PID", "the process that it watches; systemd sets it", "this one") \
  VARIABLE(kPath, "PATH", "folders of programs, with colons between", "none") \
  VARIABLE(kHome, "HOME", "the folder of `.aws`", "none") \
  VARIABLE(kTerm, "TERM", "`dumb`: no line is drawn over another", "a terminal can") \
  VARIABLE(kNoColor, "NO_COLOR", "anything but nothing: no colours", "colours on a terminal")
// clang-format on

#define STARLING_ENUMERATE(variable, name, says, otherwise) variable,
enum class EnvVar : std::size_t { STARLING_ENVIRONMENT(STARLING_ENUMERATE) kCount };
#undef STARLING_ENUMERATE

// Returns "STARLING_JOIN" of kJoin.
const char* name_of(EnvVar variable);

// Values of the variables; a variable that is set to nothing counts as not set. Threads: any, as nothing
// changes it.
class Environment {
 public:
  static Environment of_process();
  explicit Environment(std::initializer_list<std::pair<EnvVar, std::string>> values = {});

  // Returns the value; empty: the variable is not set.
  const std::string& value(EnvVar variable) const {
    return values_[static_cast<std::size_t>(variable)];
  }
  bool is_set(EnvVar variable) const { return !value(variable).empty(); }

 private:
  std::array<std::string, static_cast<std::size_t>(EnvVar::kCount)> values_;
};

// Threads: any.
const Environment& environment();

// For tests alone (tests/scoped_variable.h): environment() returns `other`, which must outlive its readers;
// null: the process's again. Returns what was given before.
const Environment* exchange_environment(const Environment* other);

}  // namespace starling
