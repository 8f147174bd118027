/** What the tensorflow engine is built from: versions and hashes, one table. Another version means another row, never a range. */

export interface NpmPin {
  readonly kind: 'npm';
  readonly name: string;
  readonly version: string;
  /** sha512 of the tarball, base64, as the registry gives it. */
  readonly sha512: string;
}

export interface WheelPin {
  readonly kind: 'wheel';
  readonly name: string;
  readonly version: string;
  /** sha256 of the file, hexadecimal. */
  readonly sha256: string;
  /** Platform tag for pip. */
  readonly platform: string;
}

export interface TensorflowPins {
  readonly tensorflow: string;
  /** The JavaScript package and the C++ source of its addon. */
  readonly addon: NpmPin;
  /** node_api.h: Node's own headers are not everywhere where Node is. */
  readonly headers: NpmPin;
  /** The first one holds libtensorflow. */
  readonly wheels: readonly WheelPin[];
  /** Free bytes while it is built, and what stays. */
  readonly buildBytes: number;
  readonly installedBytes: number;
}

export const TENSORFLOW_VARIANTS = ['cpu', 'cuda'] as const;
export type TensorflowVariant = (typeof TENSORFLOW_VARIANTS)[number];

const TENSORFLOW = '2.21.0';
const addon: NpmPin = {
  kind: 'npm',
  name: '@tensorflow/tfjs-node',
  version: '4.22.0',
  sha512: 'uHrXeUlfgkMxTZqHkESSV7zSdKdV0LlsBeblqkuKU9nnfxB1pC6DtoyYVaLxznzZy7WQSegjcohxxCjAf6Dc7w==',
};
const headers: NpmPin = {
  kind: 'npm',
  name: 'node-api-headers',
  version: '1.5.0',
  sha512: 'Yi/FgnN8IU/Cd6KeLxyHkylBUvDTsSScT0Tna2zTrz8klmc8qF2ppj6Q1LHsmOueJWhigQwR4cO2p0XBGW5IaQ==',
};
const tensorflow = (name: string, platform: string, sha256: string): WheelPin => ({
  kind: 'wheel',
  name,
  version: TENSORFLOW,
  sha256,
  platform,
});
const nvidia = (name: string, version: string, platform: string, sha256: string): WheelPin => ({
  kind: 'wheel',
  name: `nvidia-${name}-cu12`,
  version,
  sha256,
  platform,
});

const GB = 1e9;
const cpu = (wheel: WheelPin): TensorflowPins => ({
  tensorflow: TENSORFLOW,
  addon,
  headers,
  wheels: [wheel],
  buildBytes: 1.6 * GB,
  installedBytes: 0.9 * GB,
});

/** The libraries that the wheel `tensorflow[and-cuda]` asks for. */
const CUDA_LIBRARIES: readonly WheelPin[] = [
  nvidia('cublas', '12.9.3.13', 'manylinux_2_27_x86_64', 'd7d51055f161b317c7105ddaae90e71eda059026074ffef93cf7cde2886bfe72'),
  nvidia('cuda-cupti', '12.8.90', 'manylinux_2_17_x86_64', 'ea0cb07ebda26bb9b29ba82cda34849e73c166c18162d3913575b0c9db9a6182'),
  nvidia('cuda-nvcc', '12.9.86', 'manylinux_2_12_x86_64', '5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0'),
  nvidia('cuda-nvrtc', '12.9.86', 'manylinux_2_12_x86_64', '210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4'),
  nvidia('cuda-runtime', '12.9.79', 'manylinux_2_17_x86_64', '25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3'),
  nvidia('cudnn', '9.28.0.42', 'manylinux_2_27_x86_64', '9ff58b7f36dacd0a93e89f8f2957b52466889217963701daa15e577317cfa375'),
  nvidia('cufft', '11.4.1.4', 'manylinux_2_17_x86_64', 'c67884f2a7d276b4b80eb56a79322a95df592ae5e765cf1243693365ccab4e28'),
  nvidia('curand', '10.3.10.19', 'manylinux_2_27_x86_64', '49b274db4780d421bd2ccd362e1415c13887c53c214f0d4b761752b8f9f6aa1e'),
  nvidia('cusolver', '11.7.5.82', 'manylinux_2_27_x86_64', '15da72d1340d29b5b3cf3fd100e3cd53421dde36002eda6ed93811af63c40d88'),
  nvidia('cusparse', '12.5.10.65', 'manylinux_2_17_x86_64', '73060ce019ac064a057267c585bf1fd5a353734151f87472ff02b2c5c9984e78'),
  nvidia('nccl', '2.32.3', 'manylinux_2_27_x86_64', 'bb94b2348e4861d5e8aa00b36c3d12d9bdf9c6369b82cbb723de0b582280a21c'),
  nvidia('nvjitlink', '12.9.86', 'manylinux_2_12_x86_64', 'e3f1171dbdc83c5932a45f0f4c99180a70de9bd2718c1ab77d14104f6d7147f9'),
];

export type PinTable = Readonly<Record<string, Readonly<Partial<Record<TensorflowVariant, TensorflowPins>>>>>;

/** By `process.platform`-`process.arch`. */
export const TENSORFLOW_PINS: PinTable = {
  'linux-x64': {
    cpu: cpu(tensorflow('tensorflow-cpu', 'manylinux_2_27_x86_64', '2b847d217b02ee7731ed91431daf3250daa0196c3c94614d23be27232e6e5b6c')),
    cuda: {
      tensorflow: TENSORFLOW,
      addon,
      headers,
      buildBytes: 14 * GB,
      installedBytes: 9 * GB,
      wheels: [
        tensorflow('tensorflow', 'manylinux_2_27_x86_64', '9056fbc9ba04235810b71ae6cbd958a196e8804fb53bbcffbf3e23b56155f124'),
        ...CUDA_LIBRARIES,
      ],
    },
  },
  'linux-arm64': {
    // There is no wheel tensorflow-cpu for this processor; `tensorflow` has no CUDA in it.
    cpu: cpu(tensorflow('tensorflow', 'manylinux_2_27_aarch64', '4b24aca16d527a3cf1c37f720c04c484c3d20f4d0fdfa98632ac8b9f3be6eb5c')),
  },
};
